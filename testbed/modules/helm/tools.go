//go:build tools

// Package tools pins helm, which renders the chart in the tests.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
