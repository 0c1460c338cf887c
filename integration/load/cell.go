package main

import (
	"fmt"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// cell is one place of the grid: a mesh, proxies, and what is measured with them.
type cell struct {
	name    string
	mesh    refmesh.Mesh
	proxies int
	variant protocol.Variant
	// whole has virtual hosts come as part of their table.
	whole bool
	// spread takes the proxies from all namespaces.
	spread bool
	// gateways has the proxies be gateways.
	gateways bool
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
	// files has the same changes made by files of a directory, on a second server.
	files bool
	// mutual has all proxies connect over mutual TLS, to the floor as well.
	mutual  bool
	targets func(*results) []target
}

// flags are those of the server.
func (c cell) flags() []string {
	if c.whole {
		return []string{"--route-delta=off"}
	}
	return []string{"--route-delta=auto"}
}

// target is the most that a figure may be. Times depend on the machine, so they are
// judged by ratios alone: to the floor or another cell of the same run, or, widely, to
// what Istio took. Counts, bytes and shares of a core have bounds of their own.
type target struct {
	figure string
	most   float64
	why    string // what the figure is judged by, where that is no bound of its own
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
		{name: "1000:1", mesh: thousand, proxies: 1, variant: protocol.Delta, changes: everyChange},
		{name: "1000:50", mesh: thousand, proxies: 50, variant: protocol.Delta, changes: everyChange, targets: fifty(parts{endpoint: 2, endpointCPU: 2, routes: 20, routesCPU: 50})},
		{name: "1000:50/whole", mesh: thousand, proxies: 50, variant: protocol.Delta, whole: true, changes: []string{"routes"}, targets: fifty(parts{routes: 5, routesCPU: 15})},
		{name: "1000:50/world", mesh: thousand, proxies: 50, variant: protocol.StateOfTheWorld, changes: everyChange},
		{name: "1000:50/mesh-wide", mesh: refmesh.Mesh{Services: 1000, MeshWide: 50}, proxies: 50, variant: protocol.Delta, changes: imported},
		{name: "1000:200", mesh: thousand, proxies: 200, variant: protocol.Delta, changes: everyChange, floor: true, targets: firstSync},
		{name: "1000:50/mtls", mesh: thousand, proxies: 50, variant: protocol.Delta, mutual: true, changes: everyChange, targets: besidePlaintext("1000:50")},
		{name: "1000:200/mtls", mesh: thousand, proxies: 200, variant: protocol.Delta, mutual: true, changes: everyChange, floor: true, targets: besidePlaintext("1000:200")},
		{name: "1000:200/tls", mesh: refmesh.Mesh{Services: 1000, Originate: true}, proxies: 200, variant: protocol.Delta, changes: everyChange, targets: beside("1000:200", 1.3)},
		{name: "1000:200/whole", mesh: thousand, proxies: 200, variant: protocol.Delta, whole: true, changes: []string{"routes"}, floor: true},
		{name: "1000:200/spread", mesh: spread, proxies: 200, variant: protocol.Delta, spread: true, changes: everyChange, targets: beside("1000:200", 2)},
		{name: "5000:50", mesh: five, proxies: 50, variant: protocol.Delta, changes: everyChange, targets: fifty(parts{endpoint: 2, endpointCPU: 2, routes: 200, routesCPU: 200})},
		{name: "5000:200", mesh: five, proxies: 200, variant: protocol.Delta, changes: []string{"endpoint", "routes"}, floor: true, targets: withinAGibibyte},
		{name: "1000:1000/sidecars", mesh: refmesh.Mesh{Services: 1000, PerNamespace: 20}, proxies: 1000, variant: protocol.Delta, spread: true, changes: imported, floor: true, quiet: true, targets: thousandProxies},
		{name: "100:1000/gateways", mesh: refmesh.Mesh{Services: 100, Credentials: true}, proxies: 1000, variant: protocol.Delta, gateways: true, changes: []string{"secret"}, floor: true, targets: aSecretAlone},
		{name: "1000:200/reconnect", mesh: thousand, proxies: 200, variant: protocol.Delta, reconnect: true, targets: nothingAgain},
		{name: "1000:200/reconnect-whole", mesh: thousand, proxies: 200, variant: protocol.Delta, whole: true, reconnect: true, targets: nothingAgain},
		{name: "5000:200/reconnect", mesh: five, proxies: 200, variant: protocol.Delta, reconnect: true, targets: nothingAgain},
		{name: "5000:1/files", mesh: five, proxies: 1, variant: protocol.Delta, changes: []string{"endpoint", "routes"}, files: true, targets: besideTheAPI},
		{name: "1000:200/memory", mesh: thousand, proxies: 200, variant: protocol.Delta, connections: true, targets: idleConnections},
	}
}

// The names of figures.
const (
	syncTime, syncCPU, syncMemory, syncBytes, syncMessages   = "first sync: time", "first sync: CPU", "first sync: peak memory", "first sync: bytes per proxy", "first sync: messages per proxy"
	againTime, againCPU, againMemory, againHeld, againStated = "reconnect: time", "reconnect: CPU", "reconnect: peak memory", "reconnect: memory in use", "reconnect: bytes stated per proxy"
	againBytes, againMessages, againResources                = "reconnect and a change: bytes per proxy", "reconnect and a change: messages per proxy", "reconnect and a change: resources per proxy"
	quietCPU, connectionMemory                               = "quiet: share of a core", "memory of an idle connection"
)

// byFile is a change that is made by a file: its times begin when the file was at rest for
// as long as it must be.
func byFile(change string) string { return change + " by a file" }

func median(change string) string    { return change + ": p50" }
func p99(change string) string       { return change + ": p99" }
func usual(change string) string     { return change + ": p99, median repetition" }
func changeCPU(change string) string { return change + ": CPU" }
func bytesOf(change string) string   { return change + ": bytes per proxy" }
func others(change string) string    { return change + ": messages of other types" }

// parts say what part of Istio's figures a change may take, 5 for a fifth; 0 is not
// judged. They leave room for a machine that is several times as slow.
type parts struct{ endpoint, endpointCPU, routes, routesCPU float64 }

// fifty are the targets of cells with fifty proxies. They have no floor: most of such a
// change is the write to the store, which a server that only sends does not do.
func fifty(of parts) func(*results) []target {
	return func(r *results) []target {
		out := r.nothingElse()
		for _, one := range []struct {
			figure string
			part   float64
		}{
			{p99("endpoint"), of.endpoint}, {changeCPU("endpoint"), of.endpointCPU},
			{p99("routes"), of.routes}, {changeCPU("routes"), of.routesCPU},
		} {
			if one.part > 0 {
				out = append(out, r.ofIstio(one.figure, one.part))
			}
		}
		return out
	}
}

// firstSync is at most the longer of a fifth of Istio's time and one and a half
// of the floor's, with a tenth of Istio's processor time and memory.
func firstSync(r *results) []target {
	time, floor := r.ofIstio(syncTime, 5), r.ofFloor(syncTime, 1.5)
	if floor.most > time.most {
		time = floor
	}
	return append(r.nothingElse(), time, r.ofIstio(syncCPU, 10), r.ofIstio(syncMemory, 10))
}

// ofIstio allows a part of what Istio took, 5 for a fifth.
func (r *results) ofIstio(figure string, part float64) target {
	return target{figure, r.istioFigure(figure) / part, fmt.Sprintf("1/%g of Istio's", part)}
}

// ofFloor allows a number of times what the floor took in the same run. Where no floor
// was measured nothing is allowed, as there is nothing to judge by.
func (r *results) ofFloor(figure string, times float64) target {
	floor, measured := r.floors[figure]
	if !measured {
		return target{figure, 0, "no floor"}
	}
	return target{figure, times * floor, fmt.Sprintf("%gx floor", times)}
}

func withinAGibibyte(r *results) []target {
	return append(r.nothingElse(), target{syncMemory, gib, ""})
}

// thousandProxies has changes arrive within twice what it takes to send them. The p99 of
// all repetitions is that of the worst of them, in which the machine did something else,
// here or beside the floor: so the median of those of the repetitions is judged.
func thousandProxies(r *results) []target {
	out := append(r.nothingElse(), target{quietCPU, 0.01, ""})
	for _, change := range r.cell.changes {
		out = append(out, r.ofFloor(usual(change), 2))
	}
	return out
}

// aSecretAlone has a replaced secret arrive within so many times what it takes to send it,
// and nothing else with it. Each proxy has a message of its own.
func aSecretAlone(r *results) []target {
	return append(r.nothingElse(), r.ofFloor(usual("secret"), 3))
}

// nothingAgain is that nothing is sent but what changes meanwhile.
func nothingAgain(*results) []target {
	return []target{{againMessages, 1, "the change"}, {againResources, 1, "the change"}}
}

// besideTheAPI has a change by a file take at most twice as long as one through the API,
// beyond the time for which a file must be at rest.
func besideTheAPI(r *results) []target {
	var out []target
	for _, change := range r.cell.changes {
		through, _ := r.of(r.cell.name, p99(change))
		out = append(out, target{p99(byFile(change)), 2 * through, "2x the API"})
	}
	return out
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
				out = append(out, target{figure.name, times * other, fmt.Sprintf("%gx %s", times, name)})
			}
		}
		return out
	}
}

// besidePlaintext has a change over mutual TLS take little more than the same change in
// another cell, in plaintext, and a first sync, where there is a floor, at most twice what
// it takes to send it over TLS. With few proxies most of a first sync is to build what they
// get. As for a thousand proxies, the median of the p99 of the repetitions is judged.
func besidePlaintext(name string) func(*results) []target {
	const times, ofFloor = 1.3, 2
	return func(r *results) []target {
		out := r.nothingElse()
		if r.cell.floor {
			out = append(out, r.ofFloor(syncTime, ofFloor))
		}
		for _, change := range r.cell.changes {
			for _, figure := range []string{usual(change), changeCPU(change)} {
				if plain, measured := r.of(name, figure); measured {
					out = append(out, target{figure, times * plain, fmt.Sprintf("%gx %s", times, name)})
				}
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
