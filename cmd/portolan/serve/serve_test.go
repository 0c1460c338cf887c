package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/logtest"
)

var readyLine = regexp.MustCompile(`msg=ready api=(\S+) xds=(\S+)`)

// TestRun runs a server with zero options, and a store in this process.
func TestRun(t *testing.T) {
	t.Parallel()
	log := &logtest.Log{}
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	levels := loglevel.New(nil)
	go func() {
		ended <- Run(ctx, Options{
			Embedded: &Embedded{DataDir: dir, InProcess: true}, Profiles: true,
			Logger: slog.New(loglevel.NewHandler(slog.NewTextHandler(log, nil), levels)), LogLevels: levels,
		})
	}()
	ready := logtest.Await(t, log, readyLine, ended)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	paths := map[string]int{"/readyz": http.StatusOK, ProfilesPath: http.StatusOK, StatusPath("Consul"): http.StatusNotFound, StatusPath("frobs"): http.StatusNotFound}
	for path, want := range paths {
		answer, err := client.Get(ready[1] + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, answer.Status, want)
		}
	}
	for _, view := range access.Views() {
		switch view {
		case "consul", "file": // this server does not have them
			continue
		case "metrics", "paths", "profiles", "store": // they have other paths
			continue
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodDelete, ready[1]+StatusPath(discovery.Provider(view)), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusNotFound {
			t.Errorf("rules name %s, which the server does not have", view)
		}
	}
	c, err := net.Dial("tcp", ready[2])
	if err != nil {
		t.Errorf("the port of the proxies: %v", err)
	} else {
		_ = c.Close()
	}
	if _, err := os.Stat(filepath.Join(dir, member.APISocket)); err != nil {
		t.Errorf("the socket of the config API: %v", err)
	}
	stop()
	if err := <-ended; err != nil || !strings.Contains(log.String(), "msg=stopped") {
		t.Errorf("the server ended with %v:\n%s", err, log)
	}
}

// TestOptions: zero values mean what their comments say, and a server has exactly one store.
func TestOptions(t *testing.T) {
	t.Parallel()
	o, err := Options{Etcd: &Etcd{}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if o.APIAddress != "127.0.0.1:0" || o.XDSAddress != "127.0.0.1:0" || o.Mesh == nil || o.Logger == nil || o.Addresses != address.DefaultRanges() ||
		o.MaxAPIConnections != DefaultMaxAPIConnections || o.MaxStreamsPerConnection != DefaultMaxStreamsPerConnection {
		t.Errorf("%+v", o)
	}
	for name, o := range map[string]Options{"none": {}, "two": {Etcd: &Etcd{}, Embedded: &Embedded{}}} {
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "one store") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
