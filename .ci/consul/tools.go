//go:build tools

// Package tools pins the Consul that the integration tests run. It is a module
// of its own, so that nothing of Consul's server is in ours.
package tools

import _ "github.com/hashicorp/consul"
