package integration

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema/schematest"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestEnvoyTakesFinds: Envoys accept every set of objects in testdata/accepted. Each was once
// rejected by an Envoy, or did it harm.
func TestEnvoyTakesFinds(t *testing.T) {
	files, err := filepath.Glob("testdata/accepted/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no finds: %v", err)
	}
	j := newJury(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			document, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if words := j.judge(xdstest.Objects(t, string(document))); words != "" {
				t.Error(words)
			}
		})
	}
}

// TestSoakEnvoyTakesWhatIsAccepted: real Envoys, gateways and sidecars in both variants,
// promptly accept whatever validation accepts. What they reject is printed, reduced to few and
// simple objects: fix it and put it into testdata/accepted.
func TestSoakEnvoyTakesWhatIsAccepted(t *testing.T) {
	t.Parallel()
	seed, long := uint64(1), os.Getenv("PORTOLAN_SOAK")
	end := time.Now().Add(5 * time.Second)
	if long != "" {
		d, err := time.ParseDuration(long)
		if err != nil {
			t.Fatalf("PORTOLAN_SOAK: %v", err)
		}
		seed, end = uint64(time.Now().UnixNano()), time.Now().Add(d)
		if again := os.Getenv("PORTOLAN_SEED"); again != "" {
			if seed, err = strconv.ParseUint(again, 10, 64); err != nil {
				t.Fatalf("PORTOLAN_SEED: %v", err)
			}
		}
	}
	t.Logf("seed %d", seed)
	j, drawer := newJury(t), schematest.NewDrawer(seed)
	known, total, finds := map[string]bool{}, 0, 0
	for time.Now().Before(end) && finds < maxFinds {
		batch := drawer.Batch(batchSize)
		total += len(batch)
		words := j.judge(batch)
		if words == "" {
			continue
		}
		t.Logf("to be reduced: %s", words)
		culprits, words := j.reduce(batch, words)
		if kind := kindOf(words); known[kind] {
			continue
		} else {
			known[kind] = true
		}
		finds++
		t.Errorf("%s\n\nof\n\n%s", words, documents(culprits))
	}
	t.Logf("%d objects, the slowest batch of %d took %s", total, batchSize, j.slowest)
}

const (
	// batchSize is the number of objects that are applied at once.
	batchSize = 150
	// maxQuoted is how much is printed of either end of a rejection, which may quote a whole
	// resource.
	maxQuoted = 300
	// maxFinds is the number of finds that ends a run.
	maxFinds = 12
	// tooLong is how long Envoys may take for a batch, and tooLongReduced for a reduced one.
	tooLong, tooLongReduced = 45 * time.Second, 10 * time.Second
)

// kindOf returns the text of a rejection without names and numbers.
func kindOf(words string) string {
	if _, reason, ok := strings.Cut(words, " err="); ok {
		words = reason
	}
	if before, _, ok := strings.Cut(words, ";"); ok {
		words = before
	}
	words = regexp.MustCompile(`[^ ]*[0-9.|][^ ]*|'[^']*'`).ReplaceAllString(words, "")
	return words[:min(len(words), 100)]
}

func documents(objects []*config.Config) string {
	var out []string
	for _, o := range objects {
		document := schematest.Document(o)
		if len(document) > 4000 {
			document = document[:4000] + "\n..."
		}
		out = append(out, document)
	}
	return strings.Join(out, "---\n")
}

// jury is a control plane in the test's process, with Envoys that judge the resources that it
// builds from objects.
type jury struct {
	t        *testing.T
	control  *xdstest.Server
	envoys   []*envoy
	refusals *refusalLog
	there    []*config.Config
	slowest  time.Duration
	limit    time.Duration // for an answer
	stuck    bool          // one of them does not go on
}

func newJury(t *testing.T) *jury {
	t.Helper()
	needEnvoy(t)
	j := &jury{t: t, refusals: &refusalLog{}, limit: tooLong}
	j.control = xdstest.NewServer(t, catalogue.Types(), func(o *xds.Options) {
		o.Logger = slog.New(j.refusals)
	})
	j.summon()
	return j
}

// summon starts the Envoys.
func (j *jury) summon() {
	s := &server{t: j.t, api: "127.0.0.1:1", xds: j.control.Address, client: clientOf(j.t)}
	j.envoys = []*envoy{
		s.launchEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", namespace: schematest.Namespace}),
		s.launchEnvoy(envoyOptions{kind: "router", name: "world", labels: "app=edge", namespace: schematest.Namespace, ip: "10.0.0.3,fd00::3", variant: protocol.StateOfTheWorld}),
		s.launchEnvoy(envoyOptions{kind: "sidecar", name: "plain", namespace: schematest.Namespace, ip: "10.0.0.2,fd00::1", labels: "app=odd", dnsCapture: true}),
		s.launchEnvoy(envoyOptions{kind: "sidecar", name: "captured", namespace: schematest.Namespace, ip: "10.0.0.1", labels: "app=scoped", interception: "REDIRECT"}),
		s.launchEnvoy(envoyOptions{kind: "sidecar", name: "old", namespace: "else", ip: "fd00::2", variant: protocol.StateOfTheWorld, interception: "REDIRECT"}),
	}
	for _, e := range j.envoys {
		e.awaitReady()
	}
}

// judge replaces all objects, and returns why the Envoys reject them, "" if they accept them.
func (j *jury) judge(objects []*config.Config) string {
	j.clear()
	ops := make([]storage.Op, len(objects))
	for i, o := range objects {
		ops[i] = storage.Op{Verb: storage.Put, Config: o.Clone()}
	}
	j.there = objects
	began := time.Now()
	words := j.await(j.control.Batch(ops))
	j.slowest = max(j.slowest, time.Since(began))
	return words
}

// clear removes all objects. It restarts Envoys that do not accept that, or did not answer
// before.
func (j *jury) clear() {
	if len(j.there) > 0 {
		ops := make([]storage.Op, len(j.there))
		for i, o := range j.there {
			ops[i] = storage.Op{Verb: storage.Delete, Key: o.Key()}
		}
		j.there = nil
		revision := j.control.Batch(ops)
		if j.stuck || j.await(revision) != "" {
			for _, e := range j.envoys {
				e.process.kill()
			}
			xdstest.Eventually(j.t, "the Envoys are gone", func() bool { return len(j.control.XDS.Proxies()) == 0 })
			j.summon()
		}
	}
	j.stuck = false
	j.refusals.take()
}

// await waits until the Envoys have acknowledged a revision. It returns why they have not.
func (j *jury) await(revision int64) string {
	deadline := time.Now().Add(j.limit)
	for {
		if j.refusals.any() {
			return j.refusals.take()
		}
		missing := j.missing(revision)
		if missing == "" {
			return ""
		}
		for _, e := range j.envoys {
			if !e.process.running() {
				j.stuck = true
				return fmt.Sprintf("%s has ended: %v\n%s", e.name, e.process.Err(), e.process.tail())
			}
		}
		if time.Now().After(deadline) {
			j.stuck = true
			return fmt.Sprintf("not within %s: %s; %s", j.limit, missing, j.busy())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// missing returns what the Envoys have not answered yet.
func (j *jury) missing(revision int64) string {
	proxies := j.control.XDS.Proxies()
	if len(proxies) < len(j.envoys) {
		return fmt.Sprintf("%d of %d are connected", len(proxies), len(j.envoys))
	}
	for _, p := range proxies {
		for _, typ := range p.Types {
			switch {
			case typ.State == protocol.NotSent || typ.State == protocol.Synced && typ.Revision >= revision:
			case typ.State == protocol.Rejected && typ.RejectedRevision > 0 && typ.SentNonce == "":
			default:
				return fmt.Sprintf("%s %s: %s at %d", p.Name, typ.Name, typ.State, typ.Revision)
			}
		}
	}
	return ""
}

// busy names the Envoys whose admin interface does not answer either.
func (j *jury) busy() string {
	var names []string
	for _, e := range j.envoys {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.admin+"/ready", nil)
		if err != nil {
			j.t.Fatal(err)
		}
		if response, err := e.client.Do(r); err != nil {
			names = append(names, e.name)
		} else {
			_ = response.Body.Close()
		}
		cancel()
	}
	return fmt.Sprintf("busy: %v", names)
}

// reduce finds few and simple objects among some that are rejected, for a rejection of the same
// kind. It returns them with the text of the rejection.
func (j *jury) reduce(objects []*config.Config, words string) ([]*config.Config, string) {
	kind := kindOf(words)
	j.limit = tooLongReduced
	defer func() { j.limit = tooLong }()
	same := func(candidate []*config.Config) bool {
		said := j.judge(candidate)
		if said == "" || kindOf(said) != kind {
			return false
		}
		objects, words = candidate, said
		return true
	}
	for n := len(objects) / 2; n > 0; {
		smaller := false
		for at := 0; at < len(objects) && len(objects) > 1; {
			rest := slices.Delete(slices.Clone(objects), at, min(at+n, len(objects)))
			if len(rest) > 0 && same(rest) {
				smaller = true
			} else {
				at += n
			}
		}
		if n > 1 || !smaller {
			n /= 2
		}
	}
	for i := range objects {
		for simpler := true; simpler; {
			simpler = false
			for candidate := range schematest.Simplify(objects[i]) {
				changed := slices.Clone(objects)
				changed[i] = candidate
				if same(changed) {
					simpler = true
					break
				}
			}
		}
	}
	return objects, words
}

// refusalLog collects what a server logs of rejections.
type refusalLog struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

// take returns what was logged since the last call.
func (l *refusalLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.lines = nil }()
	return strings.Join(l.lines, "\n")
}

// any says whether anything was logged.
func (l *refusalLog) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines) > 0
}

// Enabled implements slog.Handler.
func (*refusalLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// WithAttrs implements slog.Handler.
func (l *refusalLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *refusalLog) WithGroup(string) slog.Handler { return l }

// isOwnFile reports whether a proxy rejects a file of its own machine. Validation knows only
// the path of such a file.
func isOwnFile(r slog.Record) (is bool) {
	r.Attrs(func(a slog.Attr) bool {
		is = is || a.Key == "resource" && (strings.HasPrefix(a.Value.String(), names.FileCertPrefix) || strings.HasPrefix(a.Value.String(), names.FileRootPrefix))
		return !is
	})
	return is
}

// Handle implements slog.Handler.
func (l *refusalLog) Handle(_ context.Context, r slog.Record) error {
	refusal := strings.HasPrefix(r.Message, "proxy rejected") || strings.HasPrefix(r.Message, "proxy refuses")
	if !refusal && r.Level < slog.LevelError {
		return nil
	}
	if isOwnFile(r) {
		return nil
	}
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			words := withoutBinds(fmt.Sprint(a.Value))
			if words == "" {
				line = ""
				return false
			}
			if end := len(words) - maxQuoted; end > maxQuoted {
				words = words[:maxQuoted] + " ... " + words[end:]
			}
			a.Value = slog.StringValue(words)
		}
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	if line == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

// withoutBinds removes the listeners that were rejected because the test's machine lacks the
// address, or its port is in use.
func withoutBinds(words string) string {
	var lines []string
	for line := range strings.Lines(words) {
		if strings.TrimSpace(line) != "" && !strings.Contains(line, "cannot bind") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}
