// Command judge asks the plugins of the Go descheduler about clusters. Each line of its input is a cluster with a policy, each line of
// its output says which pods the plugins evict.
//
// Where the order of pods, nodes or map entries is left to chance, the Go descheduler decides by chance. So a cluster is asked about
// several times, each time in another order, and all distinct outcomes are said. An eviction is seen by what follows it at once.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"

	"sigs.k8s.io/descheduler/pkg/descheduler"
)

func main() {
	silence()
	descheduler.SetupPlugins()
	policies, err := os.MkdirTemp("", "judge")
	if err != nil {
		fail(err)
	}
	defer os.RemoveAll(policies)
	in := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	out := bufio.NewWriter(os.Stdout)
	for {
		var question Question
		if err := in.Decode(&question); err == io.EOF {
			return
		} else if err != nil {
			os.RemoveAll(policies)
			fail(fmt.Errorf("a question is not understood: %w", err))
		}
		line, err := json.Marshal(question.answer(policies + "/policy.yaml"))
		if err != nil {
			fail(err)
		}
		out.Write(append(line, '\n'))
		out.Flush()
	}
}

// silence keeps the descheduler from logging, which would take most of the time.
func silence() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for flag, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "v": "0"} {
		if err := flags.Set(flag, value); err != nil {
			fail(err)
		}
	}
	klog.SetOutput(io.Discard)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "judge:", err)
	os.Exit(1)
}
