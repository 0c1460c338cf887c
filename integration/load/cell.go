package main

import (
	"time"

	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// cell is one place of the grid: a mesh, proxies, and what is measured with them.
type cell struct {
	name    string
	mesh    refmesh.Mesh
	proxies int
	variant stream.Variant
	// whole has virtual hosts come as part of their table.
	whole bool
	// spread takes the proxies from all namespaces.
	spread bool
	// changes are those that are measured.
	changes []string
	// floor has the same measured with a server that only sends.
	floor bool
	// quiet has the server watched while nothing happens, and connections their
	// memory measured.
	quiet, connections bool
	// reconnect has all proxies come back to the server when it was started anew, and
	// state what they have.
	reconnect bool
	targets   func(*results) []target
}

// flags are those of the server.
func (c cell) flags() []string {
	if c.whole {
		return []string{"--route-delta=off"}
	}
	return []string{"--route-delta=auto"}
}

// target is the most that a figure may be.
type target struct {
	figure string
	most   float64
	why    string
}

var (
	everyChange = []string{"endpoint", "routes", "rule", "new", "deleted"}
	imported    = []string{"endpoint", "routes", "rule"} // a new service is not
)

// grid is all that is measured. Cells that others refer to come before them.
func grid() []cell {
	thousand, five := refmesh.Mesh{Services: 1000}, refmesh.Mesh{Services: 5000}
	spread := refmesh.Mesh{Services: 1000, Localities: 4, LabelSets: 10}
	return []cell{
		{name: "1000:1", mesh: thousand, proxies: 1, variant: stream.Delta, changes: everyChange},
		{name: "1000:50", mesh: thousand, proxies: 50, variant: stream.Delta, changes: everyChange, targets: fifty(15*ms, 30*ms, 200)},
		{name: "1000:50/whole", mesh: thousand, proxies: 50, variant: stream.Delta, whole: true, changes: []string{"routes"}, targets: fifty(0, 150*ms, 15)},
		{name: "1000:50/world", mesh: thousand, proxies: 50, variant: stream.StateOfTheWorld, changes: everyChange},
		{name: "1000:50/mesh-wide", mesh: refmesh.Mesh{Services: 1000, MeshWide: 50}, proxies: 50, variant: stream.Delta, changes: imported},
		{name: "1000:200", mesh: thousand, proxies: 200, variant: stream.Delta, changes: everyChange, floor: true, targets: firstSync},
		{name: "1000:200/whole", mesh: thousand, proxies: 200, variant: stream.Delta, whole: true, changes: []string{"routes"}, floor: true},
		{name: "1000:200/spread", mesh: spread, proxies: 200, variant: stream.Delta, spread: true, changes: everyChange, targets: beside("1000:200", 2)},
		{name: "5000:50", mesh: five, proxies: 50, variant: stream.Delta, changes: everyChange, targets: fifty(50*ms, 50*ms, 200)},
		{name: "5000:200", mesh: five, proxies: 200, variant: stream.Delta, changes: []string{"endpoint", "routes"}, floor: true, targets: withinAGibibyte},
		{name: "1000:1000/sidecars", mesh: refmesh.Mesh{Services: 1000, PerNamespace: 20}, proxies: 1000, variant: stream.Delta, spread: true, changes: imported, floor: true, quiet: true, targets: thousandProxies},
		{name: "1000:200/reconnect", mesh: thousand, proxies: 200, variant: stream.Delta, reconnect: true, targets: nothingAgain},
		{name: "1000:200/reconnect-whole", mesh: thousand, proxies: 200, variant: stream.Delta, whole: true, reconnect: true, targets: nothingAgain},
		{name: "5000:200/reconnect", mesh: five, proxies: 200, variant: stream.Delta, reconnect: true, targets: nothingAgain},
		{name: "1000:200/memory", mesh: thousand, proxies: 200, variant: stream.Delta, connections: true, targets: idleConnections},
	}
}

// The names of figures.
const (
	syncTime, syncCPU, syncMemory, syncBytes, syncMessages   = "first sync: time", "first sync: CPU", "first sync: peak memory", "first sync: bytes per proxy", "first sync: messages per proxy"
	againTime, againCPU, againMemory, againHeld, againStated = "reconnect: time", "reconnect: CPU", "reconnect: peak memory", "reconnect: memory in use", "reconnect: bytes stated per proxy"
	againBytes, againMessages, againResources                = "reconnect and a change: bytes per proxy", "reconnect and a change: messages per proxy", "reconnect and a change: resources per proxy"
	quietCPU, connectionMemory                               = "quiet: share of a core", "memory of an idle connection"
)

func median(change string) string    { return change + ": p50" }
func p99(change string) string       { return change + ": p99" }
func changeCPU(change string) string { return change + ": CPU" }
func bytesOf(change string) string   { return change + ": bytes per proxy" }
func others(change string) string    { return change + ": messages of other types" }

// fifty are the targets of cells with fifty proxies: the time of one endpoint and
// of one VirtualService, and of how much of Istio's CPU these may take a part.
func fifty(endpoint, routes time.Duration, part int) func(*results) []target {
	return func(r *results) []target {
		were := r.istio(withoutSetting(r.cell.name))
		out := []target{
			{p99("routes"), routes.Seconds(), ""},
			{changeCPU("routes"), were.routesCPU.Seconds() / float64(part), "a part of Istio's"},
		}
		if endpoint > 0 {
			out = append(out, target{p99("endpoint"), endpoint.Seconds(), ""},
				target{changeCPU("endpoint"), were.endpointCPU.Seconds() / 5, "a fifth of Istio's"})
		}
		return append(out, r.nothingElse()...)
	}
}

// firstSync is at most the longer of a fifth of Istio's time and one and a half
// of the floor's, with a tenth of Istio's processor time and memory.
func firstSync(r *results) []target {
	were := r.istio(r.cell.name)
	return append(r.nothingElse(),
		target{syncTime, max(were.time.Seconds()/5, 1.5*r.floors[syncTime]), "a fifth of Istio's, or 1.5x the floor"},
		target{syncCPU, were.cpu.Seconds() / 10, "a tenth of Istio's"},
		target{syncMemory, were.memory / 10, "a tenth of Istio's"})
}

func withinAGibibyte(r *results) []target {
	return append(r.nothingElse(), target{syncMemory, gib, ""})
}

func thousandProxies(r *results) []target {
	out := append(r.nothingElse(), target{quietCPU, 0.01, ""})
	for _, change := range r.cell.changes {
		out = append(out, target{p99(change), 0.050, ""})
	}
	return out
}

// nothingAgain is that nothing is sent but what changes meanwhile.
func nothingAgain(*results) []target {
	return []target{{againMessages, 1, "the change"}, {againResources, 1, "the change"}}
}

func idleConnections(*results) []target {
	return []target{{connectionMemory, 100 << 10, ""}}
}

// beside allows a number of times what another cell took.
func beside(name string, times float64) func(*results) []target {
	return func(r *results) []target {
		out := r.nothingElse()
		for _, figure := range r.figures {
			other, measured := r.of(name, figure.name)
			if measured && figure.unit != count {
				out = append(out, target{figure.name, times * other, "twice that of " + name})
			}
		}
		return out
	}
}

// nothingElse is that a change has no type sent but those that it changes.
func (r *results) nothingElse() []target {
	var out []target
	for _, change := range r.cell.changes {
		out = append(out, target{figure: others(change)})
	}
	return out
}
