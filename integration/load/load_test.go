package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// TestMain lets this program be the floor server and an etcd, as the tool does.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == floorArg || len(os.Args) == 3 && os.Args[1] == etcdArg {
		main()
		return
	}
	os.Exit(m.Run())
}

// smallOptions returns the options for a small mesh.
func smallOptions(t *testing.T) options {
	t.Helper()
	return options{
		binary: buildPortolan(t), reps: 2, silence: 300 * time.Millisecond, idle: time.Second, rest: 50 * time.Millisecond,
		timeout: 2 * time.Minute, interception: "REDIRECT", changes: regexp.MustCompile(""),
	}
}

// smallMesh returns the options for a small mesh, the mesh, and a directory that it was written
// into.
func smallMesh(t *testing.T) (o options, mesh refmesh.Mesh, dir string) {
	t.Helper()
	o = smallOptions(t)
	mesh = refmesh.Mesh{Services: 20}
	dir, err := writeMesh(t.Context(), o, mesh, filepath.Join(t.TempDir(), "mesh"))
	if err != nil {
		t.Fatal(err)
	}
	return o, mesh, dir
}

// TestACellIsMeasured runs small cells against the real binary. Every figure is there, a change
// sends only the types that it changes, and the floor server has sent the same.
func TestACellIsMeasured(t *testing.T) {
	o, mesh, dir := smallMesh(t)
	for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		r := &results{floors: map[string]float64{}, report: &report{}, cell: cell{
			name: "20:4", mesh: mesh, proxies: 4, variant: v,
			changes: everyChange, floor: true, quiet: true,
		}}
		if err := measureCell(t.Context(), o, dir, r); err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		checkCell(t, r)
	}
}

// TestACellIsMeasuredOverMutualTLS: the same over mutual TLS.
func TestACellIsMeasuredOverMutualTLS(t *testing.T) {
	o, mesh, dir := smallMesh(t)
	o.changes = regexp.MustCompile("^(endpoint|routes)$")
	r := &results{floors: map[string]float64{}, report: &report{}, cell: cell{
		name: "20:4/mtls", mesh: mesh, proxies: 4, variant: protocol.Delta, mutual: true,
		changes: []string{"endpoint", "routes"}, floor: true, targets: besidePlaintext("20:4"),
	}}
	if err := measureCell(t.Context(), o, dir, r); err != nil {
		t.Fatal(err)
	}
	for _, f := range r.figures {
		if floor, measured := r.floors[f.name]; strings.HasSuffix(f.name, ": bytes per proxy") && (!measured || math.Abs(f.value-floor) > 4) { // nonces may differ in length
			t.Errorf("%s is %v, and of the server that only sends %v", f.name, f.value, floor)
		}
	}
}

// TestFilesAreMeasuredBesideTheAPI runs a small cell. Every figure is there, and the target of
// a file is that of the API.
func TestFilesAreMeasuredBesideTheAPI(t *testing.T) {
	o, mesh, dir := smallMesh(t)
	r := &results{floors: map[string]float64{}, report: &report{}, cell: cell{
		name: "20:2/files", mesh: mesh, proxies: 2, variant: protocol.Delta, changes: []string{"endpoint", "routes"}, files: true, targets: besideTheAPI,
	}}
	r.report.cells = []*results{r}
	if err := measureCell(t.Context(), o, dir, r); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range r.figures {
		got[f.name] = f.value
	}
	for _, kind := range r.cell.changes {
		for _, figure := range []string{median(kind), p99(kind), median(byFile(kind)), p99(byFile(kind))} {
			if _, measured := got[figure]; !measured {
				t.Errorf("there is no %s", figure)
			}
		}
		if target := r.targets()[p99(byFile(kind))]; target.most != 2*got[p99(kind)] {
			t.Errorf("%s is judged by %v", kind, target)
		}
	}
}

// TestARestartSendsNothingAgain: proxies that reconnect to a restarted server receive only what
// has changed, with VHDS and without.
func TestARestartSendsNothingAgain(t *testing.T) {
	o, mesh, dir := smallMesh(t)
	for _, whole := range []bool{false, true} {
		r := &results{floors: map[string]float64{}, report: &report{}, cell: cell{
			name: "20:4/reconnect", mesh: mesh, proxies: 4, variant: protocol.Delta, whole: whole, reconnect: true,
		}}
		if err := measureCell(t.Context(), o, dir, r); err != nil {
			t.Fatalf("whole %t: %v", whole, err)
		}
		got := map[string]float64{}
		for _, f := range r.figures {
			got[f.name] = f.value
		}
		if got[againMessages] != 1 || got[againResources] != 1 {
			t.Errorf("whole %t: %v messages for each proxy with %v resources, not those of the change", whole, got[againMessages], got[againResources])
		}
		if got[againStated] < 80*50 { // the clusters alone are more
			t.Errorf("whole %t: each proxy has stated %v bytes", whole, got[againStated])
		}
	}
}

func checkCell(t *testing.T, r *results) {
	t.Helper()
	got := map[string]float64{}
	for _, f := range r.figures {
		got[f.name] = f.value
	}
	want := []string{syncTime, syncCPU, syncMemory, syncBytes, syncMessages, quietCPU}
	for _, change := range everyChange {
		want = append(want, p99(change), usual(change), median(change), changeCPU(change), bytesOf(change))
		if n, measured := got[others(change)]; !measured || n != 0 {
			t.Errorf("%s: %s: %v messages of other types", r.cell.variant, change, n)
		}
	}
	for _, name := range want {
		if got[name] <= 0 {
			t.Errorf("%s: %s is %v", r.cell.variant, name, got[name])
		}
	}
	const digits = 4 // of nonces: a proxy that gets a response in two parts has longer ones
	for name, mayDiffer := range map[string]float64{syncBytes: digits, syncMessages: 0, bytesOf("endpoint"): digits, bytesOf("routes"): digits} {
		if math.Abs(r.floors[name]-got[name]) > mayDiffer {
			t.Errorf("%s: %s is %v, and of the server that only sends %v", r.cell.variant, name, got[name], r.floors[name])
		}
	}
	var table strings.Builder
	r.print(&table)
	if rows := strings.Count(table.String(), "\n"); rows != len(r.figures)+len(r.notes) {
		t.Errorf("the table has %d rows for %d figures:\n%s", rows, len(r.figures), &table)
	}
}

// buildPortolan builds the binary with the flags of the test, to use the same build cache.
func buildPortolan(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "portolan")
	if text, err := exec.Command("go", "build", "-o", out, "../../cmd/portolan").CombinedOutput(); err != nil {
		t.Fatalf("build portolan: %v\n%s", err, text)
	}
	return out
}

// judged returns the results of a cell with a p99, the same in each repetition, and its floor
// if it is above 0.
func (r *report) judged(name string, targets func(*results) []target, value, floor float64) *results {
	c := &results{cell: cell{name: name, changes: []string{"routes"}, targets: targets}, floors: map[string]float64{}, report: r}
	c.add(p99("routes"), seconds, value)
	c.add(others("routes"), count, 0)
	c.add(usual("routes"), seconds, value)
	if floor > 0 {
		c.floors[usual("routes")] = floor
	}
	r.cells = append(r.cells, c)
	return c
}

// TestTargets: times are compared with the floor of the run, another cell of it, or Istio's,
// not with fixed milliseconds.
func TestTargets(t *testing.T) {
	t.Parallel()
	fifty := fifty(parts{endpoint: 2, endpointCPU: 2, routes: 20, routesCPU: 50})
	for name, c := range map[string]struct {
		measure func(*report)
		missed  string
	}{
		"within twice the floor": {func(r *report) { r.judged("1000:1000/sidecars", thousandProxies, 0.072, 0.040) }, ""},
		"beyond twice the floor": {func(r *report) { r.judged("1000:1000/sidecars", thousandProxies, 0.013, 0.006) },
			"1000:1000/sidecars routes: p99, median repetition is 13ms: <= 12ms (2x floor)"},
		"without a floor": {func(r *report) { r.judged("1000:1000/sidecars", thousandProxies, 0.001, 0) },
			"1000:1000/sidecars routes: p99, median repetition is 1ms: <= 0s (no floor)"},
		"a part of Istio's":     {func(r *report) { r.judged("1000:50", fifty, 0.079, 0) }, ""},
		"more of Istio's":       {func(r *report) { r.judged("1000:50", fifty, 0.081, 0) }, "1000:50 routes: p99 is 81ms: <= 80ms (1/20 of Istio's)"},
		"of Istio's plain cell": {func(r *report) { r.judged("1000:50/whole", fifty, 0.081, 0) }, "1000:50/whole routes: p99 is 81ms: <= 80ms (1/20 of Istio's)"},
		"within twice another cell": {func(r *report) {
			r.judged("1000:200", nil, 0.1, 0)
			r.judged("1000:200/spread", timesOtherCell("1000:200", 2), 0.19, 0)
		}, ""},
		"beyond twice another cell": {func(r *report) {
			r.judged("1000:200", nil, 0.1, 0)
			r.judged("1000:200/spread", timesOtherCell("1000:200", 2), 0.21, 0)
		}, "1000:200/spread routes: p99 is 210ms: <= 200ms (2x 1000:200); 1000:200/spread routes: p99, median repetition is 210ms: <= 200ms (2x 1000:200)"},
		"automatic mutual TLS within its bounds": {func(r *report) {
			r.judged("peers-off", nil, 0.1, 0).add(bytesOf("routes"), bytes, 1000)
			r.judged("peers", besideOff("peers-off"), 0.129, 0).add(bytesOf("routes"), bytes, 1199)
		}, ""},
		"automatic mutual TLS beyond its bounds": {func(r *report) {
			r.judged("peers-off", nil, 0.1, 0).add(bytesOf("routes"), bytes, 1000)
			r.judged("peers", besideOff("peers-off"), 0.131, 0).add(bytesOf("routes"), bytes, 1201)
		}, "peers routes: p99, median repetition is 131ms: <= 130ms (1.3x peers-off); peers routes: bytes per proxy is 1.2 KiB: <= 1.2 KiB (1.2x peers-off)"},
		"patches within their bounds, whatever their bytes": {func(r *report) {
			r.judged("1000:200", nil, 0.1, 0).add(bytesOf("routes"), bytes, 1000)
			r.judged("1000:200/patched", besideUnpatched("1000:200"), 0.129, 0).add(bytesOf("routes"), bytes, 2000)
		}, ""},
		"patches beyond their bounds": {func(r *report) {
			r.judged("1000:200", nil, 0.1, 0)
			r.judged("1000:200/patched", besideUnpatched("1000:200"), 0.131, 0)
		}, "1000:200/patched routes: p99, median repetition is 131ms: <= 130ms (1.3x 1000:200)"},
		"what a change does not change": {func(r *report) { r.judged("1000:50", fifty, 0.001, 0).figures[1].value = 1 },
			"1000:50 routes: messages of other types is 1: <= 0"},
	} {
		r := &report{}
		c.measure(r)
		if got := strings.Join(r.missed(), "; "); got != c.missed {
			t.Errorf("%s: missed %q, want %q", name, got, c.missed)
		}
	}
}

// TestFirstSyncIsJudgedByTheLarger of Istio's part and the floor's.
func TestFirstSyncIsJudgedByTheLarger(t *testing.T) {
	t.Parallel()
	for floor, want := range map[float64]float64{1: 4.8, 10: 15} {
		r := &results{cell: cell{name: "1000:200", targets: firstSync}, floors: map[string]float64{syncTime: floor}}
		if got := r.targets()[syncTime]; math.Abs(got.most-want) > 1e-9 {
			t.Errorf("with a floor of %v s: %+v, want %v s", floor, got, want)
		}
	}
}

// TestTheGridHasWhatItIsJudgedBy: a cell with targets by a floor measures one, and for targets
// by Istio there are figures.
func TestTheGridHasWhatItIsJudgedBy(t *testing.T) {
	t.Parallel()
	for _, c := range grid() {
		r := &results{cell: c, floors: map[string]float64{}, report: &report{}}
		if c.floor {
			r.floors[syncTime] = 1
			for _, change := range c.changes {
				r.floors[usual(change)] = 1
			}
		}
		if c.files || c.kubernetes { // compared with the same cell's changes in the store
			r.report.cells = []*results{r}
			for _, change := range c.changes {
				r.add(p99(change), seconds, 1)
				r.add(onceShown(change), seconds, 1)
			}
		}
		for figure, target := range r.targets() {
			if target.why != "" && target.most == 0 {
				t.Errorf("%s: %s is to be %q, and there is nothing of that", c.name, figure, target.why)
			}
		}
	}
}
