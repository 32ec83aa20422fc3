// Command pod-server is all that is in the image of real nodes: it answers over HTTP, or does nothing, until it is told to end.
//
//	pod-server                    does nothing, as the container that holds a pod's network does
//	pod-server serve :8080 2s     serves, and goes on for 2 s after SIGTERM, until everybody knows that it leaves
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	if len(os.Args) == 4 && os.Args[1] == "serve" {
		name, _ := os.Hostname()
		go func() {
			answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })
			fmt.Fprintln(os.Stderr, http.ListenAndServe(os.Args[2], answer))
			os.Exit(1)
		}()
		<-ended
		pause, err := time.ParseDuration(os.Args[3])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		time.Sleep(pause)
		return
	}
	<-ended
}
