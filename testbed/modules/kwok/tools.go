//go:build tools

// Package tools pins kwok, which plays the nodes of the testbed.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
