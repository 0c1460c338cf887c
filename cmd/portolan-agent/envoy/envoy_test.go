package envoy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVersion: a binary that is too old, or is no Envoy, is refused.
func TestVersion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ says, want, fault string }{
		"good":     {"envoy  version: 84813d76d8/1.40.0/Clean/RELEASE/BoringSSL", "1.40.0", ""},
		"newer":    {"envoy  version: 84813d76d8/1.41.2/Clean/RELEASE/BoringSSL", "1.41.2", ""},
		"too old":  {"envoy  version: 84813d76d8/1.39.9/Clean/RELEASE/BoringSSL", "", "is Envoy 1.39.9: use 1.40 or later"},
		"no Envoy": {"hello", "", "does not say which Envoy it is"},
	} {
		path := filepath.Join(t.TempDir(), "envoy")
		if err := os.WriteFile(path, []byte(fmt.Sprintf("#!/bin/sh\necho '%s'\n", c.says)), 0o700); err != nil {
			t.Fatal(err)
		}
		got, err := Version(t.Context(), path)
		if got != c.want || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestConnections: connections of workers are in the sum of their listener, and those of the admin
// interface do not count.
func TestConnections(t *testing.T) {
	t.Parallel()
	text := "listener.127.0.0.1_80.downstream_cx_active: 3\nlistener.127.0.0.1_80.worker_0.downstream_cx_active: 3\nlistener.admin.downstream_cx_active: 1\nlistener.0.0.0.0_15006.downstream_cx_active: 2\n"
	if got := connections(text); got != 5 {
		t.Errorf("%d, want 5", got)
	}
	if got := connections(""); got != 0 {
		t.Errorf("%d of nothing", got)
	}
}

// TestUnderWay: requests and connections count apart, over all ports.
func TestUnderWay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]UnderWay{
		"": {},
		"cluster.inbound|8080||.upstream_rq_active: 2\ncluster.inbound|5432||.upstream_rq_active: 1\nhttp.inbound_0.0.0.0_8080;.downstream_cx_active: 3\nhttp.inbound_10.0.0.1_9080;.downstream_cx_active: 4\n": {3, 7},
		"http.inbound_0.0.0.0_8080;.downstream_cx_active: 0\n": {},
		"an error\n": {},
	} {
		if got := underWay(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// TestReady: an Envoy is ready when it is live and has had its clusters and listeners.
func TestReady(t *testing.T) {
	t.Parallel()
	const both = "cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 2\n"
	for name, c := range map[string]struct {
		pid          int
		ready, stats string
		want         string
	}{
		"ready":              {1, "LIVE\n", both, ""},
		"none":               {0, "LIVE\n", both, "the Envoy does not run"},
		"it initializes":     {1, "INITIALIZING\n", both, "the Envoy is INITIALIZING"},
		"it drains":          {1, "DRAINING\n", both, "the Envoy is DRAINING"},
		"nothing has come":   {1, "LIVE\n", "", "the Envoy has no configuration yet"},
		"no listeners yet":   {1, "LIVE\n", "cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 0\n", "the Envoy has no configuration yet"},
		"it does not answer": {1, "", "", "the Envoy does not answer"},
	} {
		admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case c.ready == "":
				panic(http.ErrAbortHandler)
			case r.URL.Path == "/ready":
				_, _ = io.WriteString(w, c.ready)
			default:
				_, _ = io.WriteString(w, c.stats)
			}
		}))
		t.Cleanup(admin.Close)
		child := &Child{o: Options{Admin: admin.Listener.Addr().String()}, status: Status{PID: c.pid}}
		for range 2 {
			got := ""
			if err := child.Ready(t.Context()); err != nil {
				got = err.Error()
			}
			if got != c.want || child.configured != (c.want == "") {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
	}
}
