package filesd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/discovery/filesd"
	"github.com/portolan-mesh/portolan/storage/labels"
)

type scene struct {
	*filesd.Registry
	t   *testing.T
	dir string
	xds discoverytest.Recorder
}

// follow runs a registry over files of a directory.
func follow(t *testing.T, dir string, change func(*filesd.Options), names ...string) *scene {
	t.Helper()
	s := &scene{t: t, dir: dir}
	o := filesd.Options{XDS: &s.xds, Worker: cache.NewWorker(), Timing: quick, Patience: time.Minute, Registerer: prometheus.NewRegistry()}
	for _, name := range names {
		o.Files = append(o.Files, filepath.Join(dir, name))
	}
	if change != nil {
		change(&o)
	}
	var err error
	if s.Registry, err = filesd.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{o.Worker.Run, s.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

func (s *scene) put(name, text string) {
	s.t.Helper()
	replace(s.t, filepath.Join(s.dir, name), text)
}

func (s *scene) await(what string, holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("it does not come true that %s: %s; %+v", what, s.rows(), s.Status())
		}
	}
}

// rows returns the published rows, one line each.
func (s *scene) rows() (out []string) {
	for key, row := range s.xds.Rows() {
		line := key
		for _, service := range row.Services {
			line += " " + service.Resolution.String()
			for _, p := range service.Ports {
				line += fmt.Sprintf(" %s/%d/%s", p.Name, p.Number, p.Protocol)
			}
		}
		for _, e := range row.Endpoints {
			line += fmt.Sprintf(" %s=%s:%d", e.ServicePortName, e.Address, e.Port)
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func (s *scene) awaitRows(want ...string) {
	s.t.Helper()
	s.await("the rows are "+strings.Join(want, ", "), func() bool { return slices.Equal(s.rows(), want) })
}

func TestWhatBecomesWhat(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*filesd.Options)
		text   string
		rows   []string
		flaws  []string
	}{
		"JSON": {nil, `[{"targets": ["10.0.0.2:9001", "10.0.0.1:9001"], "labels": {"portolan_service": "web", "portolan_protocol": "http", "v": "1"}}]`,
			[]string{"default/web.mesh.internal ClientSideLB http-9001/9001/HTTP http-9001=10.0.0.1:9001 http-9001=10.0.0.2:9001"}, nil},
		"YAML, a host, a namespace": {nil, "- targets: ['[::1]:80', 10.0.0.1:80]\n  labels: {portolan_service: Web.Shop.example, portolan_namespace: shop}\n",
			[]string{"shop/web.shop.example ClientSideLB tcp-80/80/TCP tcp-80=10.0.0.1:80 tcp-80=::1:80"}, nil},
		"a port of the service": {nil, "- targets: [10.0.0.1:8080, 10.0.0.2, '::1']\n  labels: {portolan_service: web, portolan_port: 80, portolan_protocol: grpc}\n",
			[]string{"default/web.mesh.internal ClientSideLB grpc-80/80/GRPC grpc-80=10.0.0.1:8080 grpc-80=10.0.0.2:80 grpc-80=::1:80"}, nil},
		"several ports": {nil, "- {targets: [10.0.0.1:80], labels: {portolan_service: web, portolan_protocol: http}}\n- {targets: [10.0.0.1:81, 10.0.0.1:81], labels: {portolan_service: web}}\n",
			[]string{"default/web.mesh.internal ClientSideLB http-80/80/HTTP tcp-81/81/TCP http-80=10.0.0.1:80 tcp-81=10.0.0.1:81"}, nil},
		"host names": {nil, "- {targets: ['db.example:5432', '10.0.0.1:5432'], labels: {portolan_service: db}}\n",
			[]string{"default/db.mesh.internal DNSLB tcp-5432/5432/TCP tcp-5432=10.0.0.1:5432 tcp-5432=db.example:5432"}, nil},
		"another label, domain and namespace": {
			func(o *filesd.Options) { o.ServiceLabel, o.Domain, o.Namespace = "job", "example.", "ops" },
			"- {targets: ['10.0.0.1:9100'], labels: {job: node, __meta_x: y}}\n",
			[]string{"ops/node.example ClientSideLB tcp-9100/9100/TCP tcp-9100=10.0.0.1:9100"}, nil,
		},
		"an empty list": {nil, "[]", nil, nil},
		"no targets":    {nil, "- labels: {portolan_service: web}", nil, nil},
		"flaws": {nil, `
- {targets: ["10.0.0.1:80"], labels: {a: b}}
- {targets: ["10.0.0.1:80"], labels: {portolan_service: "a_b"}}
- {targets: ["10.0.0.1:80"], labels: {portolan_service: web, portolan_namespace: a.b}}
- {targets: ["10.0.0.1:80"], labels: {portolan_service: web, portolan_protocol: morse}}
- {targets: ["10.0.0.1:80"], labels: {portolan_service: web, portolan_weight: 0}}
- {targets: ["10.0.0.1:80"], labels: {portolan_service: web, portolan_port: 0}}
- {targets: ["10.0.0.1", "10.0.0.1:70000", "http://a:80", "10.0.0.3:80"], labels: {portolan_service: web}}
`, []string{"default/web.mesh.internal ClientSideLB tcp-80/80/TCP tcp-80=10.0.0.3:80"}, []string{
			"1 : no label portolan_service names a service: left out",
			`2 : portolan_service: "a_b.mesh.internal" is no host name: left out`,
			`3 : portolan_namespace: "a.b" is no DNS label: left out`,
			`4 : portolan_protocol: "morse" is not known: left out`,
			`5 : portolan_weight: "0" is no number from 1 on: left out`,
			`6 : portolan_port: "0" is no port: left out`,
			"7 10.0.0.1: it has no port, as HOST:PORT has: left out",
			`7 10.0.0.1:70000: "70000" is no port: left out`,
			"7 http://a:80: it has no port, as HOST:PORT has: left out",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			replace(t, filepath.Join(dir, "t.yaml"), test.text)
			s := follow(t, dir, test.change, "t.yaml")
			s.await("it has synced", s.HasSynced)
			s.awaitRows(test.rows...)
			var flaws []string
			for _, f := range s.Status().Flaws {
				flaws = append(flaws, fmt.Sprintf("%d %s: %s", f.Group, f.Target, f.Reason))
			}
			if d := cmp.Diff(test.flaws, flaws); d != "" {
				t.Error(d)
			}
			if err := s.Degraded(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUnknownLabels: a label with Portolan's prefix that Portolan does not know has no effect
// and shows as a flaw. No target is left out for it.
func TestUnknownLabels(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "- {targets: ['10.0.0.1:80'], labels: {job: web, portolan_service: db, portolan_nmaespace: x, portolan_zone: a}}\n"
	replace(t, filepath.Join(dir, "t.yaml"), text)
	s := follow(t, dir, func(o *filesd.Options) { o.ServiceLabel = "job" }, "t.yaml")
	s.awaitRows("default/web.mesh.internal ClientSideLB tcp-80/80/TCP tcp-80=10.0.0.1:80")
	const none = "is not known: it has no effect, and is no label of the endpoints"
	at := filepath.Join(dir, "t.yaml") + ": group 1: label portolan_"
	want := []string{
		at + "nmaespace " + none + ": did you mean portolan_namespace?",
		at + "service " + none + ": the service is named by the label job",
		at + "zone " + none,
	}
	var got []string
	for _, f := range s.Status().Flaws {
		got = append(got, f.String())
		if f.LeftOut {
			t.Errorf("%s is left out", f)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if labels := s.xds.Rows()["default/web.mesh.internal"].Endpoints[0].Labels; len(labels) != 0 {
		t.Errorf("the endpoint has the labels %v", labels)
	}
}

// TestPlaces: Places names the groups of all files that list a service.
func TestPlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	web := "- {targets: ['10.0.0.1:80', '10.0.0.2:80'], labels: {portolan_service: web}}\n"
	replace(t, filepath.Join(dir, "a.yaml"), "- {targets: ['10.0.0.9:80'], labels: {portolan_service: db}}\n"+web)
	replace(t, filepath.Join(dir, "b.yaml"), web+web)
	s := follow(t, dir, nil, "a.yaml", "b.yaml")
	s.await("it has synced", s.HasSynced)
	want := []string{filepath.Join(dir, "a.yaml") + ": group 2", filepath.Join(dir, "b.yaml") + ": group 1", filepath.Join(dir, "b.yaml") + ": group 2"}
	if d := cmp.Diff(want, s.Places("web.mesh.internal", "default")); d != "" {
		t.Error(d)
	}
	if places := s.Places("web.mesh.internal", "other"); places != nil {
		t.Errorf("of another namespace: %v", places)
	}
}

// TestLabels: an endpoint has the labels of its group without Portolan's own. The labels also
// give its locality.
func TestLabels(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	replace(t, filepath.Join(dir, "t.yaml"), `
- targets: [10.0.0.1:80]
  labels: {portolan_service: web, portolan_weight: 3, portolan_workload: vm1, version: 1.5, canary: true, __scheme__: http,
    topology.kubernetes.io/region: eu, topology.kubernetes.io/zone: eu-1, topology.istio.io/network: n1, security.istio.io/tlsMode: istio}
`)
	s := follow(t, dir, nil, "t.yaml")
	s.await("there is a row", func() bool { return len(s.xds.Rows()) == 1 })
	want := &discovery.Endpoint{
		Address: "10.0.0.1", Port: 80, ServicePortName: "tcp-80", ServicePort: 80, Weight: 3, WorkloadName: "vm1", Namespace: "default", TLSMode: "istio", Network: "n1",
		Locality: discovery.Locality{Label: "eu/eu-1"},
		Labels: labels.Instance{
			"version": "1.5", "canary": "true", "topology.kubernetes.io/region": "eu", "topology.kubernetes.io/zone": "eu-1",
			"topology.istio.io/network": "n1", "security.istio.io/tlsMode": "istio",
		},
	}
	if d := cmp.Diff(want, s.xds.Rows()["default/web.mesh.internal"].Endpoints[0]); d != "" {
		t.Error(d)
	}
}

// TestChanges: a target that is no longer listed goes; a broken file keeps its content.
func TestChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one := func(address string) string {
		return fmt.Sprintf(`[{"targets": [%q], "labels": {"portolan_service": "web"}}]`, address)
	}
	row := func(addresses ...string) string {
		out := "default/web.mesh.internal ClientSideLB tcp-80/80/TCP"
		for _, a := range addresses {
			out += " tcp-80=" + a
		}
		return out
	}
	replace(t, filepath.Join(dir, "a.json"), one("10.0.0.1:80"))
	s := follow(t, dir, nil, "a.json", "b.json")
	if s.await("one file is read", func() bool { return len(s.rows()) == 1 }); s.Ready() == nil {
		t.Error("it does not wait for the other file")
	}
	s.put("b.json", one("10.0.0.2:80"))
	s.awaitRows(row("10.0.0.1:80", "10.0.0.2:80"))
	s.await("it has synced", s.HasSynced)
	s.put("a.json", "[]")
	s.awaitRows(row("10.0.0.2:80"))
	for what, spoil := range map[string]func(){
		"is no list":    func() { s.put("b.json", `{"targets": []}`) },
		"unknown field": func() { s.put("b.json", `[{"target": []}]`) },
		"not valid":     func() { s.put("b.json", `[{"targets": [`) },
		"is no text":    func() { s.put("b.json", `[{"labels": {"a": []}}]`) },
		"become empty":  func() { s.put("b.json", "") },
		"is gone": func() {
			if err := os.Remove(filepath.Join(dir, "b.json")); err != nil {
				t.Error(err)
			}
		},
	} {
		spoil()
		s.await("it says "+what, func() bool { err := s.Degraded(); return err != nil && strings.Contains(err.Error(), what) })
		status := s.SourceStatuses()
		if status[1].State != discovery.SourceLastKnown || status[1].Problem == "" || status[0].State != discovery.SourceLive {
			t.Errorf("the sources are %+v", status)
		}
		s.awaitRows(row("10.0.0.2:80"))
		s.put("b.json", one("10.0.0.3:80"))
		s.awaitRows(row("10.0.0.3:80"))
		s.await("all is well", func() bool { return s.Degraded() == nil })
		s.put("b.json", one("10.0.0.2:80"))
		s.awaitRows(row("10.0.0.2:80"))
	}
	s.put("b.json", "[]")
	s.awaitRows()
	if redundant := s.xds.Redundant(); len(redundant) > 0 {
		t.Errorf("handed over twice: %v", redundant)
	}
}

// TestPatience: at the start the registry waits for a file, but not for ever.
func TestPatience(t *testing.T) {
	t.Parallel()
	s := follow(t, t.TempDir(), func(o *filesd.Options) { o.Patience = 50 * time.Millisecond }, "a.json", "none/b.json")
	s.await("it has synced", s.HasSynced)
	s.await("it says what is missing", func() bool {
		err := s.Degraded()
		return err != nil && strings.Contains(err.Error(), "a.json is not there") && strings.Contains(err.Error(), "cannot be read")
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for words, o := range map[string]filesd.Options{
		"there are none": {}, "is empty or there twice": {Files: []string{"a", "a"}},
		"is not a DNS name": {Files: []string{"a"}, Domain: "a..b"}, "is not a DNS label": {Files: []string{"a"}, Namespace: "a.b"},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}

// FuzzParse: parsing survives any text.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "[]", "- {targets: [a:1, '::1'], labels: {portolan_service: a, portolan_port: 7}}", `[{"targets": ["x"], "labels": {"a": 1e99}}]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, row := range filesd.RowsOf(data) {
			if len(row.Services) != 1 || len(row.Endpoints) == 0 {
				t.Errorf("a row has %d services and %d endpoints", len(row.Services), len(row.Endpoints))
			}
			for _, e := range row.Endpoints {
				if e.ServicePortName == "" || e.Port == 0 || e.Address == "" {
					t.Errorf("an endpoint is %+v", e)
				}
			}
		}
	})
}
