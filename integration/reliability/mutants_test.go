package reliability_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/integration/reliability"
)

var mutantsFlag = flag.Bool("mutants", false, "try all mutants, not only those of every day")

// change replaces a piece of a source file.
type change struct{ file, old, new string }

// mutant is Portolan with one mistake, and the invariant that it breaks.
type mutant struct {
	name      string
	invariant string
	changes   []change
	topology  string
	harm      string // name of the fault; empty for none
	// daily means that every run of the tests includes it.
	daily bool
}

const (
	watchFile     = "cache/mirror/watch.go"
	listFile      = "cache/mirror/list.go"
	mutationFile  = "storage/etcd/mutation.go"
	landFile      = "storage/etcd/land.go"
	freshnessFile = "cmd/portolan/rest/freshness.go"
	apiWatchFile  = "cmd/portolan/rest/watch.go"
	metricsFile   = "cache/mirror/metrics.go"
)

// slowMirror lets the cache fall behind a little, so that code which does not wait for it is
// noticed.
var slowMirror = []change{
	{watchFile, "\t\"sync\"\n", "\t\"sync\"\n\t\"time\"\n"},
	{watchFile, "\tc.markHeard()\n\tsnapshot := c.Snapshot()\n", "\ttime.Sleep(30 * time.Millisecond)\n\tc.markHeard()\n\tsnapshot := c.Snapshot()\n"},
}

var mutants = []mutant{
	{name: "events-dropped", invariant: "WATCH-RELIABLE", topology: "embedded", daily: true, changes: []change{
		{watchFile, "\tcontent := snapshot.Content()\n\tfor i, e := range events {\n",
			"\tcontent := snapshot.Content()\n\tif revision%50 == 0 {\n\t\tevents = nil\n\t}\n\tfor i, e := range events {\n"},
	}},
	{name: "batch-in-halves", invariant: "TXN-ALL", topology: "embedded", daily: true, changes: []change{
		{watchFile, "\t\"sync\"\n", "\t\"sync\"\n\t\"time\"\n"},
		{watchFile, "\tfor i, e := range events {\n\t\tc.change(&content, e, entries[i])\n",
			"\tfor i, e := range events {\n\t\tif i == 1 {\n\t\t\tc.Publish(snapshot.Next(revision, content))\n\t\t\ttime.Sleep(5 * time.Millisecond)\n\t\t}\n\t\tc.change(&content, e, entries[i])\n"},
	}},
	{name: "relist-without-deletions", invariant: "RELIST-EQ", topology: "embedded", harm: "compact-behind", daily: true, changes: []change{
		{listFile, "\tc.Replace((*cache.Snapshot)(nil).Next(header.Revision, content).InEpoch(c.epoch))\n",
			"\tif old := c.Snapshot(); old != nil {\n\t\tfor path, object := range old.Configs().All() {\n\t\t\tif content.Configs.Value(path) == nil {\n\t\t\t\tcontent.Configs = content.Configs.Set(path, object)\n\t\t\t}\n\t\t}\n\t}\n\tc.Replace((*cache.Snapshot)(nil).Next(header.Revision, content).InEpoch(c.epoch))\n"},
	}},
	{name: "write-id-ignored", invariant: "AMBIG", topology: "members", harm: "lose-answers", daily: true, changes: []change{
		{mutationFile, "func (m *mutation) landed(now *targets) int64 {\n", "func (m *mutation) landed(now *targets) int64 {\n\tif now != nil {\n\t\treturn 0\n\t}\n"},
	}},
	{name: "acknowledged-and-not-written", invariant: "DURABLE", topology: "embedded", changes: []change{
		{landFile, "\tanswer, err := t.send(ctx, t.m.compares, t.m.writes, t.m.reads)\n",
			"\tif t.m.writeID[0] < 8 {\n\t\treturn nil, 1, nil\n\t}\n\tanswer, err := t.send(ctx, t.m.compares, t.m.writes, t.m.reads)\n"},
	}},
	{name: "stale-consistent-reads", invariant: "CAS-LIN", topology: "members", changes: append(slices.Clone(slowMirror),
		change{freshnessFile, "\treturn max(revision, now), nil\n", "\treturn max(revision, min(now, 1)), nil\n"})},
	{name: "revision-not-waited-for", invariant: "RYW", topology: "members", changes: append(slices.Clone(slowMirror),
		change{freshnessFile, "\tif snapshot.Revision() >= revision {\n", "\tif revision >= 0 {\n"})},
	{name: "staleness-untold", invariant: "FRESH", topology: "members", harm: "hold-clients", changes: []change{
		{metricsFile, "return c.Staleness().Seconds()", "return 0 * c.Staleness().Seconds()"},
	}},
	{name: "watch-events-twice", invariant: "WATCH-UNIQUE", topology: "embedded", changes: []change{
		{apiWatchFile, "errors.Join(advance(at, next), w.flush())", "errors.Join(advance(at, next), advance(at, next), w.flush())"},
	}},
	{name: "watch-from-now", invariant: "WATCH-RESUMABLE", topology: "embedded", harm: "kill-server", changes: []change{
		{apiWatchFile, "\tfrom, ok := s.cache.Since(ctx, o.revision)\n", "\tfrom, ok := newest, newest != nil\n"},
	}},
}

// TestMutants builds Portolan with one mistake at a time: the checker of the broken invariant
// finds it. Without -mutants it tries only the daily ones.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		if !m.daily && !*mutantsFlag {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			begun := time.Now()
			binary := built.build(t, m.name, overlay(t, m.changes))
			topo, harm := m.find(t)
			const duration = 6 * time.Second
			// A mistake shows only if a fault and a write coincide, which one run may miss. On
			// a busy machine, about every other run finds write-id-ignored.
			const tries = 12
			var got []string
			for seed := uint64(1); seed <= tries && !slices.Contains(got, m.invariant); seed++ {
				h, trouble := run(t, topo, seed, duration, harm, binary)
				got = reliability.Broken(reliability.Judge(h))
				t.Logf("seed %d breaks %s (%d calls; trouble: %v)", seed, strings.Join(got, ", "), len(h.Calls), trouble)
			}
			if !slices.Contains(got, m.invariant) {
				t.Errorf("nobody noticed that %s is broken", m.invariant)
			}
			t.Logf("took %s", time.Since(begun).Round(time.Second))
		})
	}
}

// find returns the topology for the mutant, and its faults.
func (m mutant) find(t *testing.T) (topology, []harm) {
	t.Helper()
	for _, topo := range topologies() {
		if topo.name != m.topology {
			continue
		}
		if m.harm == "" {
			return topo, nil
		}
		for _, h := range topo.harm {
			if h.name == m.harm {
				return topo, []harm{h}
			}
		}
	}
	t.Fatalf("no harm %s in a topology %s", m.harm, m.topology)
	return topology{}, nil
}

// overlay writes changed copies of sources for `go build -overlay`. If a source does not have
// exactly one place for each change, the test fails: adapt the mutant.
func overlay(t *testing.T, changes []change) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for _, c := range changes {
		path := filepath.Join(root, c.file)
		if _, ok := sources[path]; !ok {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			sources[path] = string(text)
		}
		if n := strings.Count(sources[path], c.old); n != 1 {
			t.Fatalf("%s has %d places that read\n%s\nwhich this mutant changes: change the mutant as the source was changed", c.file, n, c.old)
		}
		sources[path] = strings.Replace(sources[path], c.old, c.new, 1)
	}
	replace := map[string]string{}
	for path, text := range sources {
		to := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(path, root), string(filepath.Separator), "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = to
	}
	document, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, document, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestMutantsApply: the sources still have the places that the mutants change.
func TestMutantsApply(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			overlay(t, m.changes)
			m.find(t)
			if !slices.Contains(reliability.Names(), m.invariant) {
				t.Errorf("no checker knows %s", m.invariant)
			}
		})
	}
}
