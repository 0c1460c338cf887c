// Package probe has the message by which the agent of a machine learns how to find out whether
// the workload there is healthy.
package probe

//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.57.2 generate

// Type is the type of the resource, and Name its only name.
const (
	Type = "type.googleapis.com/portolan.machine.v1.Probe"
	Name = "probe"
)
