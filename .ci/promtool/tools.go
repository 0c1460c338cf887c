//go:build tools

// Package tools pins the promtool that the integration tests run. It is a module of its own,
// so that nothing of Prometheus is in ours.
package tools

import _ "github.com/prometheus/prometheus/cmd/promtool"
