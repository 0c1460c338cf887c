package integration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// server is a `portolan serve`.
type server struct {
	t       testing.TB
	o       serverOptions
	api     string // host:port; restarts keep it
	xds     string
	process *process
	client  *http.Client
}

// serverOptions are the options of a server. By default it gets a new data directory and free
// ports.
type serverOptions struct {
	dataDir string
	// etcd is the endpoint of an external etcd; empty for the embedded one.
	etcd       string
	meshConfig string // a YAML document
	args       []string
	program    string // empty for the one that is tested
}

// startServer runs a server until the test ends.
func startServer(t testing.TB, o serverOptions) *server {
	t.Helper()
	if o.dataDir == "" && o.etcd == "" {
		o.dataDir = filepath.Join(t.TempDir(), "data")
	}
	if o.meshConfig != "" {
		o.args = append(o.args, "--mesh-config", write(t, "mesh.yaml", o.meshConfig))
	}
	s := &server{t: t, o: o, api: local(freePort(t)), xds: local(freePort(t)), client: clientOf(t)}
	s.start()
	return s
}

// announced is the line that a server logs when it is ready.
var announced = regexp.MustCompile(`msg=ready .*api=http://(\S+) xds=(\S+)`)

// start runs the server and waits until it is ready. A restart uses the same ports.
func (s *server) start() {
	s.t.Helper()
	s.launch()
	s.awaitReady()
}

// launch runs the server without waiting.
func (s *server) launch() {
	s.t.Helper()
	args := []string{"serve", "--api-address", s.api, "--xds-address", s.xds}
	if s.o.etcd != "" {
		args = append(args, "--etcd-endpoints", s.o.etcd)
	} else {
		args = append(args, "--data-dir", s.o.dataDir)
	}
	args = append(args, s.o.args...)
	if s.founds(args) {
		args = append(args, "--new-store")
	}
	s.process = start(s.t, "portolan", cmp.Or(s.o.program, binary), args...)
}

// founds says whether the server has to be told to begin a store: it has none, joins none, and
// other machines could reach it.
func (s *server) founds(args []string) bool {
	if _, err := os.Stat(filepath.Join(s.o.dataDir, "etcd")); s.o.dataDir == "" || err == nil {
		return false
	}
	joins := slices.Contains(args, "--join") || slices.Contains(args, "--store-join") || slices.Contains(args, "--new-store")
	reachable := slices.Contains(args, "--store-peer-url") ||
		slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "0.0.0.0:") })
	return reachable && !joins
}

// awaitReady waits until the server has logged that it is ready.
func (s *server) awaitReady() {
	s.t.Helper()
	eventually(s.t, "the server is ready", func() error {
		if line := announced.FindStringSubmatch(s.process.output()); line != nil {
			s.api, s.xds = line[1], line[2]
			return nil
		}
		if !s.process.running() {
			s.t.Fatalf("the server has ended: %v\n%s", s.process.Err(), s.process.tail())
		}
		return errors.New("it has not said so")
	})
}

// kill kills the server as kill -9 does. Its store process then ends by itself.
func (s *server) kill() { s.process.kill() }

func (s *server) url(path string) string { return "http://" + s.api + path }

// get reads a path of the API. If into is not nil, it decodes the answer as JSON into it.
func (s *server) get(path string, into any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url(path), nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %s", path, response.Status, body)
	}
	if into != nil {
		return body, json.Unmarshal(body, into)
	}
	return body, nil
}

// outcome is the result of a run of the command line.
type outcome struct {
	stdout, stderr string
	code           int
}

// command runs the binary with stdin as its standard input.
func command(t testing.TB, stdin string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, binary, args...)
	c.Stdin = strings.NewReader(stdin)
	return runCommand(t, c)
}

// runCommand runs a command to its end, whatever its exit code.
func runCommand(t testing.TB, c *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", c, err)
	}
	return outcome{stdout: stdout.String(), stderr: stderr.String(), code: c.ProcessState.ExitCode()}
}

// invitation returns an invitation for machines that reach the server at these addresses.
func (s *server) invitation(api, xds string, flags ...string) string {
	s.t.Helper()
	line := s.must("", append([]string{"machine", "invite", "-n", "shop", "--api-url", "https://" + api, "--xds-address", xds}, flags...)...)
	text, ok := strings.CutPrefix(strings.TrimSpace(line), "portolan-agent join ")
	if !ok {
		s.t.Fatalf("the line is %q", line)
	}
	return text
}

// try runs a command against the server.
func (s *server) try(stdin string, args ...string) outcome {
	s.t.Helper()
	return command(s.t, stdin, append(args, "--server", "http://"+s.api)...)
}

// must runs a command that has to succeed, and returns its output.
func (s *server) must(stdin string, args ...string) string {
	s.t.Helper()
	out := s.try(stdin, args...)
	if out.code != 0 {
		s.t.Fatalf("portolan %s: exit code %d\n%s%s", strings.Join(args, " "), out.code, out.stdout, out.stderr)
	}
	return out.stdout
}

// apply writes documents as one batch, and returns the store's revision after it.
func (s *server) apply(documents ...string) int64 {
	s.t.Helper()
	s.must(strings.Join(documents, "\n---\n"), "apply", "-f", "-")
	return s.revision()
}

// remove deletes the objects in documents, even if others refer to them.
func (s *server) remove(documents ...string) int64 {
	s.t.Helper()
	s.must(strings.Join(documents, "\n---\n"), "delete", "-f", "-", "--yes")
	return s.revision()
}

// revision returns the revision of the store.
func (s *server) revision() int64 {
	s.t.Helper()
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if _, err := s.get("/apis/networking.istio.io/v1/virtualservices", &list); err != nil {
		s.t.Fatal(err)
	}
	n, err := strconv.ParseInt(list.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// proxies returns the connected proxies, by name.
func (s *server) proxies() (map[string]progress.ProxyStatus, error) {
	var list admin.ProxyList
	if _, err := s.get(admin.ProxiesPath, &list); err != nil {
		return nil, err
	}
	out := map[string]progress.ProxyStatus{}
	for _, p := range list.Items {
		name, _, _ := strings.Cut(p.Name, ".")
		out[name] = p
	}
	return out, nil
}

// awaitSynced waits until proxies have acknowledged everything as of a revision. It fails at
// once on a rejection.
func (s *server) awaitSynced(revision int64, names ...string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%v acknowledge revision %d", names, revision), func() error {
		connected, err := s.proxies()
		if err != nil {
			return err
		}
		for _, name := range names {
			p, ok := connected[name]
			if !ok {
				return fmt.Errorf("%s is not connected", name)
			}
			for _, typ := range p.Types {
				if typ.State == protocol.Rejected {
					s.t.Fatalf("%s rejected %s: %s", name, typ.Name, typ.Message)
				}
			}
			if !syncedAt(p, revision) {
				return fmt.Errorf("%s is at %d: %+v", name, p.Revision, p.Types)
			}
		}
		return nil
	})
}

// syncedAt reports whether a proxy has acknowledged clusters and listeners, and all that it
// requested, as of a revision.
func syncedAt(p progress.ProxyStatus, revision int64) bool {
	for _, typ := range p.Types {
		optional := typ.Name != "CDS" && typ.Name != "LDS"
		if typ.State == protocol.NotSent && optional {
			continue
		}
		if typ.State != protocol.Synced {
			return false
		}
	}
	return p.Revision >= revision
}

// counters returns the values of a metric by the value of one of its labels.
func (s *server) counters(metric, label string) map[string]int {
	s.t.Helper()
	text, err := s.get("/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]int{}
	for _, m := range families[metric].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label {
				out[l.GetValue()] += int(m.GetCounter().GetValue())
			}
		}
	}
	return out
}

// sentResources returns the number of resources sent since the server started, by type.
func (s *server) sentResources() map[string]int {
	return nonzero(s.counters("portolan_xds_resources_sent_total", "type"))
}

// responses returns the number of responses sent since the server started, by type.
func (s *server) responses() map[string]int {
	return nonzero(s.counters("portolan_xds_responses_total", "type"))
}

// expectNothingRejected fails if a proxy has rejected anything.
func (s *server) expectNothingRejected() {
	s.t.Helper()
	if n := nonzero(s.counters("portolan_xds_rejections_total", "type")); len(n) > 0 {
		s.t.Errorf("proxies rejected responses: %v\n%s", n, s.process.tail())
	}
}

// less returns the increase of counts between two readings.
func less(after, before map[string]int) map[string]int {
	out := map[string]int{}
	for k, n := range after {
		out[k] = n - before[k]
	}
	return nonzero(out)
}

func nonzero(m map[string]int) map[string]int {
	for k, n := range m {
		if n == 0 {
			delete(m, k)
		}
	}
	return m
}

// listening reports whether something listens on an address.
func listening(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// typesOf returns the names of types, in order.
func typesOf(counts map[string]int) []string {
	var out []string
	for name := range counts {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
