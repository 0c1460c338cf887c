package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
)

const good = `
api: [https://mesh.example.com:15080]
xds: [mesh.example.com:15012]
proxy: {type: sidecar, name: web, namespace: shop, serviceAccount: web, ips: [10.0.0.1]}
state: /var/lib/portolan-agent
run: /run/portolan-agent
`

func read(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Read(file)
}

// TestRead: what is written is read back, with the defaults.
func TestRead(t *testing.T) {
	t.Parallel()
	c, err := read(t, good)
	if err != nil {
		t.Fatal(err)
	}
	if c.LastGood.After.Duration != 5*time.Second || c.LastGood.MaxAge.Duration != 24*time.Hour || c.Envoy.Path != "envoy" || c.XDSSocket() != "/run/portolan-agent/xds.sock" ||
		c.Ready != "127.0.0.1:15021" || c.Health.Exec {
		t.Errorf("it is %+v", c)
	}
	file := filepath.Join(t.TempDir(), "new", "c.yaml")
	if err := c.Write(file); err != nil {
		t.Fatal(err)
	}
	again, err := config.Read(file)
	if diff := cmp.Diff(c, again); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestFaults come all at once, with field and mend.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"an unknown field": {good + "sate: /x\n", []string{`unknown field "sate"`}},
		"many": {"api: [http://a]\nxds: [a]\nstate: x\nproxy: {type: waypoint, ips: [b/c]}\nlastGood: {after: -1s}\n", []string{
			`api[0] "http://a": give a URL`, `xds[0] "a": give host:port`, `state "x": give the absolute path`, `run "": give`, "lastGood.after -1s: give a time", `type "waypoint": use sidecar or router`, `proxy.ips[0] "b/c": give an address, a range`,
		}},
		"addresses of pages": {good + "metrics: a\nready: b\n", []string{`metrics "a": give host:port, or off`, `ready "b": give host:port, or off`}},
		"patches":            {good + "envoy: {patches: some}\n", []string{`envoy.patches "some": use guarded, all or none`}},
		"nothing":            {"{}", []string{"api: is missing", "xds: is missing"}},
	} {
		_, err := read(t, c.text)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v says nothing of %q", name, err, want)
			}
		}
	}
	if _, err := config.Read(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "portolan-agent join") {
		t.Errorf("no file: %v", err)
	}
}

// TestWith: what flags say goes before the file, and has the same faults.
func TestWith(t *testing.T) {
	t.Parallel()
	c, err := read(t, good)
	if err != nil {
		t.Fatal(err)
	}
	var over config.Config
	if same, err := c.With(over); err != nil || cmp.Diff(c, same) != "" {
		t.Errorf("nothing changes it: %+v, %v", same, err)
	}
	over.XDS, over.Envoy.Path, over.Envoy.Drain.Duration, over.Metrics = []string{"b:1"}, "/bin/envoy", time.Minute, "off"
	if got, err := c.With(over); err != nil || got.XDS[0] != "b:1" || got.Envoy.Path != "/bin/envoy" || got.Envoy.Drain.Duration != time.Minute || got.Metrics != "off" || got.API[0] != c.API[0] {
		t.Errorf("it is %+v, %v", got, err)
	}
	over.XDS = []string{"b"}
	if _, err := c.With(over); err == nil || !strings.Contains(err.Error(), `xds[0] "b": give host:port`) {
		t.Errorf("a fault: %v", err)
	}
}
