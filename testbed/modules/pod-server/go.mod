module usher.dev/testbed/pod-server

go 1.24
