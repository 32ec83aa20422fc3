// Command drainers empties a node with the eviction code of a drainer that knows nothing of Usher, and prints each try: a client for the
// tests of the gateway.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

var drainers = map[string]func(context.Context, *rest.Config, string) error{
	"cluster-api": drainAsClusterAPI,
	"karpenter":   drainAsKarpenter,
}

func main() {
	if len(os.Args) != 3 || drainers[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: drainers cluster-api|karpenter NODE")
		os.Exit(2)
	}
	ctrl.SetLogger(klog.Background())
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err == nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return told{next} })
		err = drainers[os.Args[1]](context.Background(), config, os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "drainers:", err)
		os.Exit(1)
	}
	say("drained %s", os.Args[2])
}

var started = time.Now()

func say(format string, values ...any) {
	fmt.Printf("%.1fs %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, values...))
}

// told prints every eviction that is sent, those too that client-go repeats on its own, and its answer.
type told struct{ next http.RoundTripper }

func (t told) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err == nil && strings.HasSuffix(request.URL.Path, "/eviction") {
		pod := strings.Split(request.URL.Path, "/")[6]
		say("evicts %s: %d, Retry-After %q", pod, response.StatusCode, response.Header.Get("Retry-After"))
	}
	return response, err
}
