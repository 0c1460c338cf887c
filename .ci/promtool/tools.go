//go:build tools

// Package promtool names the source that .ci/promtool/build makes promtool from.
package promtool

import _ "github.com/prometheus/prometheus/cmd/promtool"
