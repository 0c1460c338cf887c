package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// cell is one cell of the grid: a mesh, proxies, and what to measure with them.
type cell struct {
	name    string
	mesh    refmesh.Mesh
	proxies int
	variant protocol.Variant
	// whole disables VHDS: virtual hosts come within their route configuration.
	whole bool
	// spread takes the proxies from all namespaces.
	spread bool
	// gateways makes the proxies gateways.
	gateways bool
	// changes are the kinds of changes to measure.
	changes []string
	// floor repeats the measurements with a server that only sends.
	floor bool
	// quiet measures the idle server, and connections the memory of its connections.
	quiet, connections bool
	// reconnect restarts the server, and lets all proxies reconnect and state what they have.
	reconnect bool
	// files makes the same changes by files of a directory, on a second server.
	files bool
	// kubernetes makes the same changes in a cluster, which has half of the services.
	kubernetes bool
	// mutual connects all proxies over mutual TLS, to the floor as well.
	mutual bool
	// noAutoMTLS disables automatic mutual TLS between workloads.
	noAutoMTLS bool
	targets    func(*results) []target
}

// flags returns the flags of the server.
func (c cell) flags() []string {
	if c.whole {
		return []string{"--route-delta=off"}
	}
	return []string{"--route-delta=auto"}
}

// target is the upper bound of a figure. Times depend on the machine, so their bounds are
// ratios: to the floor or another cell of the same run or, widely, to Istio's time. Counts,
// bytes and shares of a core have fixed bounds.
type target struct {
	figure string
	most   float64
	why    string // what the bound derives from; empty for a fixed one
}

var (
	everyChange = []string{"endpoint", "routes", "rule", "new", "deleted"}
	imported    = []string{"endpoint", "routes", "rule"} // a new service is not imported
)

// grid returns all cells. Cells that others refer to come first.
func grid() []cell {
	thousand, five := refmesh.Mesh{Services: 1000}, refmesh.Mesh{Services: 5000}
	spread := refmesh.Mesh{Services: 1000, Localities: 4, LabelSets: 10}
	peers := refmesh.Mesh{Services: 1000, Peers: true}
	return []cell{
		{name: "1000:1", mesh: thousand, proxies: 1, variant: protocol.Delta, changes: everyChange},
		{name: "1000:50", mesh: thousand, proxies: 50, variant: protocol.Delta, changes: everyChange, targets: fifty(parts{endpoint: 2, endpointCPU: 2, routes: 20, routesCPU: 50})},
		{name: "1000:50/whole", mesh: thousand, proxies: 50, variant: protocol.Delta, whole: true, changes: []string{"routes"}, targets: fifty(parts{routes: 5, routesCPU: 15})},
		{name: "1000:50/world", mesh: thousand, proxies: 50, variant: protocol.StateOfTheWorld, changes: everyChange},
		{name: "1000:50/mesh-wide", mesh: refmesh.Mesh{Services: 1000, MeshWide: 50}, proxies: 50, variant: protocol.Delta, changes: imported},
		{name: "1000:200", mesh: thousand, proxies: 200, variant: protocol.Delta, changes: everyChange, floor: true, targets: firstSync},
		{name: "1000:50/mtls", mesh: thousand, proxies: 50, variant: protocol.Delta, mutual: true, changes: everyChange, targets: besidePlaintext("1000:50")},
		{name: "1000:200/mtls", mesh: thousand, proxies: 200, variant: protocol.Delta, mutual: true, changes: everyChange, floor: true, targets: besidePlaintext("1000:200")},
		{name: "1000:200/tls", mesh: refmesh.Mesh{Services: 1000, Originate: true}, proxies: 200, variant: protocol.Delta, changes: everyChange, targets: timesOtherCell("1000:200", 1.3)},
		{name: "1000:200/peers-off", mesh: peers, proxies: 200, variant: protocol.Delta, noAutoMTLS: true, changes: []string{"endpoint", "routes"}},
		{name: "1000:200/peers", mesh: peers, proxies: 200, variant: protocol.Delta, changes: []string{"endpoint", "routes"}, targets: besideOff("1000:200/peers-off")},
		{name: "1000:200/policies", mesh: refmesh.Mesh{Services: 1000, Policies: true}, proxies: 200, variant: protocol.Delta, changes: []string{"endpoint", "routes", "policy"}, targets: besideNone("1000:200")},
		{name: "1000:200/patched", mesh: refmesh.Mesh{Services: 1000, Patches: 50}, proxies: 200, variant: protocol.Delta, changes: []string{"endpoint", "routes"}, targets: besideUnpatched("1000:200")},
		{name: "1000:200/kubernetes", mesh: refmesh.Mesh{Services: 1000, HalfInCluster: true}, proxies: 200, variant: protocol.Delta, changes: []string{"endpoint", "routes"}, kubernetes: true, targets: besideTheStore("1000:200")},
		{name: "1000:200/whole", mesh: thousand, proxies: 200, variant: protocol.Delta, whole: true, changes: []string{"routes"}, floor: true},
		{name: "1000:200/spread", mesh: spread, proxies: 200, variant: protocol.Delta, spread: true, changes: everyChange, targets: timesOtherCell("1000:200", 2)},
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

// byFile names a change made by a file. Its times begin after the period for which a file has
// to be at rest.
func byFile(change string) string { return change + " by a file" }

// inCluster names a change made in the cluster.
func inCluster(change string) string { return change + " in the cluster" }

// onceShown is the p99 from when a bare watch of the store or of the cluster shows the change: what
// an API takes for a write is not in it.
func onceShown(change string) string { return change + ": p99 once shown, median repetition" }

func median(change string) string    { return change + ": p50" }
func p99(change string) string       { return change + ": p99" }
func usual(change string) string     { return change + ": p99, median repetition" }
func changeCPU(change string) string { return change + ": CPU" }
func bytesOf(change string) string   { return change + ": bytes per proxy" }
func others(change string) string    { return change + ": messages of other types" }

// parts limit a change to a part of Istio's figures, 5 for a fifth; 0 is no limit. They leave
// room for a machine that is several times as slow.
type parts struct{ endpoint, endpointCPU, routes, routesCPU float64 }

// fifty returns the targets of cells with fifty proxies. They have no floor: most of such a
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

// firstSync allows the longer of a fifth of Istio's time and one and a half of the floor's, and
// a tenth of Istio's processor time and memory.
func firstSync(r *results) []target {
	time, floor := r.ofIstio(syncTime, 5), r.ofFloor(syncTime, 1.5)
	if floor.most > time.most {
		time = floor
	}
	return append(r.nothingElse(), time, r.ofIstio(syncCPU, 10), r.ofIstio(syncMemory, 10))
}

// ofIstio allows a part of Istio's figure, 5 for a fifth.
func (r *results) ofIstio(figure string, part float64) target {
	return target{figure, r.istioFigure(figure) / part, fmt.Sprintf("1/%g of Istio's", part)}
}

// ofFloor allows a number of times the floor's figure in the same run. Without a floor it
// allows nothing, since there is nothing to compare with.
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

// thousandProxies allows changes twice the time that it takes to send them. The p99 of all
// repetitions is that of the worst one, in which the machine did something else, here or at the
// floor. So the median of the repetitions' p99s counts.
func thousandProxies(r *results) []target {
	out := append(r.nothingElse(), target{quietCPU, 0.01, ""})
	for _, change := range r.cell.changes {
		out = append(out, r.ofFloor(usual(change), 2))
	}
	return out
}

// aSecretAlone limits the time of a replaced secret to a number of times what it takes to send
// it, and allows no other type. Each proxy gets a message of its own.
func aSecretAlone(r *results) []target {
	return append(r.nothingElse(), r.ofFloor(usual("secret"), 3))
}

// nothingAgain allows a server to send only what changed meanwhile.
func nothingAgain(*results) []target {
	return []target{{againMessages, 1, "the change"}, {againResources, 1, "the change"}}
}

// besideTheAPI allows a change by a file twice the time of one through the API, not counting
// the period for which a file has to be at rest.
func besideTheAPI(r *results) []target {
	var out []target
	for _, change := range r.cell.changes {
		through, _ := r.figureOf(r.cell.name, p99(change))
		out = append(out, target{p99(byFile(change)), 2 * through, "2x the API"})
	}
	return out
}

// besideTheStore allows a change in the cluster little more time than the same change in the store,
// once either is shown, and a first sync little more than the cell without a cluster. A change sends
// only its own types.
func besideTheStore(name string) func(*results) []target {
	const ofChange, ofSync = 1.3, 1.2
	return func(r *results) []target {
		out := r.nothingElse()
		if other, measured := r.figureOf(name, syncTime); measured {
			out = append(out, target{syncTime, ofSync * other, fmt.Sprintf("%gx %s", ofSync, name)})
		}
		for _, change := range r.cell.changes {
			stored, _ := r.figureOf(r.cell.name, onceShown(change))
			out = append(out, target{figure: others(inCluster(change))}, target{onceShown(inCluster(change)), ofChange * stored, fmt.Sprintf("%gx the store", ofChange)})
		}
		return out
	}
}

func idleConnections(*results) []target {
	return []target{{connectionMemory, 100 << 10, ""}}
}

// timesOtherCell allows a number of times the figure of another cell.
func timesOtherCell(name string, times float64) func(*results) []target {
	return func(r *results) []target {
		out := r.nothingElse()
		for _, figure := range r.figures {
			other, measured := r.figureOf(name, figure.name)
			if measured && figure.unit != count {
				out = append(out, target{figure.name, times * other, fmt.Sprintf("%gx %s", times, name)})
			}
		}
		return out
	}
}

// besidePlaintext allows a change over mutual TLS little more than the same change in another
// cell, in plaintext. If there is a floor, it allows a first sync twice what it takes to send
// it over TLS. With few proxies, most of a first sync is building the resources. As for a
// thousand proxies, the median of the repetitions' p99s counts.
func besidePlaintext(name string) func(*results) []target {
	const times, ofFloor = 1.3, 2
	return func(r *results) []target {
		out := r.nothingElse()
		if r.cell.floor {
			out = append(out, r.ofFloor(syncTime, ofFloor))
		}
		for _, change := range r.cell.changes {
			for _, figure := range []string{usual(change), changeCPU(change)} {
				if plain, measured := r.figureOf(name, figure); measured {
					out = append(out, target{figure, times * plain, fmt.Sprintf("%gx %s", times, name)})
				}
			}
		}
		return out
	}
}

// besideOff allows automatic mutual TLS little more than the cell without: of bytes, of time and
// of CPU. As for a thousand proxies, the median of the repetitions' p99s counts.
func besideOff(name string) func(*results) []target {
	const ofBytes, ofTime = 1.2, 1.3
	return func(r *results) []target {
		out := r.nothingElse()
		times := map[string]float64{syncBytes: ofBytes, syncTime: ofTime, syncCPU: ofTime}
		for _, change := range r.cell.changes {
			times[bytesOf(change)], times[usual(change)], times[changeCPU(change)] = ofBytes, ofTime, ofTime
		}
		for _, figure := range slices.Sorted(maps.Keys(times)) {
			if off, measured := r.figureOf(name, figure); measured {
				out = append(out, target{figure, times[figure] * off, fmt.Sprintf("%gx %s", times[figure], name)})
			}
		}
		return out
	}
}

// besideNone allows policies little more than the cell without, and the change of one little more
// than that of an endpoint.
func besideNone(name string) func(*results) []target {
	const times = 1.3
	return func(r *results) []target {
		out := timesOtherCell(name, times)(r)
		if endpoint, measured := r.figureOf(r.cell.name, usual("endpoint")); measured {
			out = append(out, target{usual("policy"), times * endpoint, fmt.Sprintf("%gx an endpoint", times)})
		}
		return out
	}
}

// besideUnpatched allows patches little more time and CPU than the cell without. They may make resources
// larger. As for a thousand proxies, the median of the repetitions' p99s counts.
func besideUnpatched(name string) func(*results) []target {
	const times = 1.3
	return func(r *results) []target {
		figures := []string{syncTime, syncCPU}
		for _, change := range r.cell.changes {
			figures = append(figures, usual(change), changeCPU(change))
		}
		out := r.nothingElse()
		for _, figure := range figures {
			if other, measured := r.figureOf(name, figure); measured {
				out = append(out, target{figure, times * other, fmt.Sprintf("%gx %s", times, name)})
			}
		}
		return out
	}
}

// nothingElse allows a change to send only the types that it changes.
func (r *results) nothingElse() []target {
	var out []target
	for _, change := range r.cell.changes {
		out = append(out, target{figure: others(change)})
	}
	return out
}
