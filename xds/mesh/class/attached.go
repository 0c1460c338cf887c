package class

import (
	"iter"
	"strconv"
	"strings"
)

// Kind is a kind of what attaches to proxies by their labels.
type Kind byte

// The kinds, in the order of an Attached, and what the name of each is.
const (
	// Trait is the proxy's locality, or a label of it, by which some configuration
	// balances load: name=value.
	Trait Kind = 'a' + iota
	// Source is a selector of source labels in VirtualServices that matches: its String.
	Source
	// Client is a selector of client proxies in DestinationRules of the proxy's namespace
	// that matches: its String.
	Client
	// Sidecar is the Sidecar that applies: its path.
	Sidecar
	// Gateway is a Gateway that selects a router: its path.
	Gateway
	// Telemetry is a Telemetry that applies: its path. Those of the mesh, of the namespace and of
	// the workload stand in this order.
	Telemetry
	// Patch is an EnvoyFilter that does not attach to all proxies of its namespace: its path. Of
	// one with patches for some versions or metadata of proxies, those that are for the proxy are
	// here too: PatchName.
	Patch
	// Plugin is a WasmPlugin that applies: its path.
	Plugin

	FirstKind, LastKind = Trait, Plugin
)

// Everywhere says whether the kind attaches to proxies of all namespaces. Other kinds
// attach to those of their own namespace, and some from the root namespace to all.
func (k Kind) Everywhere() bool { return k == Trait || k == Source || k == Gateway }

// PatchName names one patch of an EnvoyFilter, by its index.
func PatchName(path string, index int) string { return path + "#" + strconv.Itoa(index) }

// Attached names what attaches to a proxy, a line each: the kind, then the name. The lines
// are in the order of kinds, then of names, so equal sets are equal texts.
type Attached string

// Separator ends each name of an Attached.
const Separator = "\n"

// Add appends the names of a kind, which are in order. The kind comes after those of a.
func (a Attached) Add(kind Kind, names ...string) Attached {
	var out strings.Builder
	out.WriteString(string(a))
	for _, name := range names {
		out.WriteByte(byte(kind))
		out.WriteString(name)
		out.WriteString(Separator)
	}
	return Attached(out.String())
}

// Of returns the part of a that is of a kind.
func (a Attached) Of(kind Kind) Attached {
	begin, end := a.bounds(kind)
	return a[begin:end]
}

// Without returns a without a kind.
func (a Attached) Without(kind Kind) Attached {
	begin, end := a.bounds(kind)
	return a[:begin] + a[end:]
}

// Names iterates over the names of a kind, in order.
func (a Attached) Names(kind Kind) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(string(a.Of(kind))) {
			if !yield(strings.TrimSuffix(line[1:], Separator)) {
				return
			}
		}
	}
}

// Has says whether a has a name of a kind.
func (a Attached) Has(kind Kind, name string) bool {
	for n := range a.Names(kind) {
		if n == name {
			return true
		}
	}
	return false
}

// bounds returns where the names of a kind begin and end.
func (a Attached) bounds(kind Kind) (begin, end int) {
	for line := range strings.Lines(string(a)) {
		switch k := Kind(line[0]); {
		case k > kind:
			return begin, end
		case k < kind:
			begin += len(line)
		}
		end += len(line)
	}
	return begin, end
}
