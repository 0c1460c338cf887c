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

	"github.com/portolan-mesh/portolan/xds/stream"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// TestMain lets this program be the server that only sends, as the tool's own is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == floorArg {
		main()
		return
	}
	os.Exit(m.Run())
}

// small is a mesh that is written, and how it is measured.
func small(t *testing.T) (o options, mesh refmesh.Mesh, dir string) {
	t.Helper()
	o = options{
		binary: buildPortolan(t), reps: 2, silence: 300 * time.Millisecond, idle: time.Second, rest: 50 * time.Millisecond,
		timeout: 2 * time.Minute, interception: "REDIRECT", changes: regexp.MustCompile(""),
	}
	mesh = refmesh.Mesh{Services: 20}
	dir, err := writeMesh(t.Context(), o, mesh, filepath.Join(t.TempDir(), "mesh"))
	if err != nil {
		t.Fatal(err)
	}
	return o, mesh, dir
}

// TestACellIsMeasured runs small cells against the real binary: every figure is
// there, a change has no other type sent than those that it changes, and the
// server that only sends has sent the same.
func TestACellIsMeasured(t *testing.T) {
	o, mesh, dir := small(t)
	for _, v := range []stream.Variant{stream.Delta, stream.StateOfTheWorld} {
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

// TestARestartSendsNothingAgain: proxies that come back to a server which was
// started anew are sent nothing but what changes then, whether virtual hosts come
// one by one or not.
func TestARestartSendsNothingAgain(t *testing.T) {
	o, mesh, dir := small(t)
	for _, whole := range []bool{false, true} {
		r := &results{floors: map[string]float64{}, report: &report{}, cell: cell{
			name: "20:4/reconnect", mesh: mesh, proxies: 4, variant: stream.Delta, whole: whole, reconnect: true,
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
		if got[againStated] < 80*50 { // the clusters alone
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
		want = append(want, p99(change), median(change), changeCPU(change), bytesOf(change))
		if n, measured := got[others(change)]; !measured || n != 0 {
			t.Errorf("%s: %s: %v messages of other types", r.cell.variant, change, n)
		}
	}
	for _, name := range want {
		if got[name] <= 0 {
			t.Errorf("%s: %s is %v", r.cell.variant, name, got[name])
		}
	}
	const digits = 4 // of nonces, of which a proxy that is sent something in two parts has another
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

// buildPortolan builds the binary as `make build` does, whose cache it shares.
func buildPortolan(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "portolan")
	build := exec.Command("go", "build", "-trimpath", "-o", out, "../../cmd/portolan")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build portolan: %v\n%s", err, text)
	}
	return out
}

// TestTargets: what misses a target is named, and what is beside another cell is
// compared with that.
func TestTargets(t *testing.T) {
	t.Parallel()
	all := &report{}
	add := func(name string, targets func(*results) []target, value float64) {
		r := &results{cell: cell{name: name, changes: []string{"routes"}, targets: targets}, floors: map[string]float64{}, report: all}
		r.add(p99("routes"), seconds, value)
		r.add(others("routes"), count, 0)
		all.cells = append(all.cells, r)
	}
	add("1000:50", fifty(15*ms, 30*ms, 200), 0.031)
	add("1000:200", nil, 0.1)
	add("1000:200/spread", beside("1000:200", 2), 0.19)
	if got := strings.Join(all.missed(), "; "); got != "1000:50 routes: p99" {
		t.Errorf("missed: %s", got)
	}
	all.cells[2].figures[0].value = 0.21
	all.cells[2].figures[1].value = 1
	if got := all.missed(); len(got) != 3 {
		t.Errorf("missed: %v", got)
	}
}
