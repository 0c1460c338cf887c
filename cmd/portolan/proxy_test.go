package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/propagation"
	"github.com/portolan-mesh/portolan/xds/stream"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func someProxies() admin.ProxyList {
	synced := func(name string, ago time.Duration) xds.TypeStatus {
		return xds.TypeStatus{Name: name, State: stream.Synced, Revision: 815, Sent: noon.Add(-ago), Answered: noon.Add(-ago)}
	}
	return admin.ProxyList{TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "ProxyList"}, Server: "cp-2:7/0a1b2c3d",
		Elsewhere: map[string]int{"cp-1:7/44556677": 40},
		Gone:      []propagation.Gone{{Node: "sidecar~10.0.0.9~vm-9.shop~shop.svc.cluster.local", Seen: noon.Add(-3 * time.Minute)}},
		Items: []xds.ProxyStatus{
			{Node: "router~10.0.0.2~edge-1.edge~edge.svc.cluster.local", Name: "edge-1", Type: "router", Namespace: "edge", Variant: "delta", Envoy: "1.40.0", Revision: 814,
				Types: []xds.TypeStatus{
					synced("CDS", 3*time.Minute), synced("EDS", 9*time.Second),
					{Name: "LDS", State: stream.Stale, Sent: noon.Add(-41 * time.Second), Answered: noon.Add(-time.Hour), StaleSince: noon.Add(-41 * time.Second), AckedNonce: "812-4", SentNonce: "815-5"},
					{Name: "RDS", State: stream.NotSent},
				}},
			{Node: "sidecar~10.0.0.17~vm-17.shop~shop.svc.cluster.local", Name: "vm-17", Type: "sidecar", Namespace: "shop", Variant: "delta", Revision: 812,
				Types: []xds.TypeStatus{
					synced("CDS", 26*time.Hour), synced("EDS", 0), synced("LDS", 3*time.Hour),
					{Name: "RDS", State: stream.Rejected, Answered: noon.Add(-12 * time.Second), StaleSince: noon.Add(-12 * time.Second), RejectedRevision: 815, RejectedNonce: "815-9", AckedNonce: "812-8", Objects: []string{"virtualservice/shop/reviews"}, Message: "unknown cluster\n\"outbound|80\"\n"},
				}},
		}}
}

// proxyStatus runs proxy status at noon against a server that has the proxies.
func proxyStatus(t *testing.T, list admin.ProxyList, args ...string) outcome {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != admin.ProxiesPath {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer server.Close()
	var out, err bytes.Buffer
	env := &environment{stdin: strings.NewReader(""), stdout: &out, stderr: &err, now: func() time.Time { return noon }}
	root := newRootCommand(env)
	root.SetArgs(append([]string{"proxy", "--server", server.URL}, args...))
	if e := root.ExecuteContext(context.WithoutCancel(t.Context())); e != nil {
		t.Fatal(e)
	}
	return outcome{exitOK, out.String(), strings.ReplaceAll(err.String(), server.URL, "URL")}
}

func TestProxyStatus(t *testing.T) {
	t.Parallel()
	o := proxyStatus(t, someProxies(), "status")
	golden(t, "proxy-status.txt", o.out)
	if list := proxyStatus(t, someProxies(), "list"); list != o {
		t.Errorf("proxy list: %+v", list)
	}
	golden(t, "proxy-status-wide.txt", proxyStatus(t, someProxies(), "status", "-o", "wide").out)
	one := proxyStatus(t, someProxies(), "status", "edge-1").out
	if strings.Contains(one, "vm-17") || !strings.Contains(one, "edge-1") {
		t.Errorf("one proxy: %s", one)
	}
	for only, want := range map[string][2]bool{"rejected": {false, true}, "stale": {true, false}, "rejected,stale": {true, true}} {
		out := proxyStatus(t, someProxies(), "status", "--only", only).out
		if got := [2]bool{strings.Contains(out, "edge-1"), strings.Contains(out, "vm-17")}; got != want {
			t.Errorf("--only %s: edge-1 and vm-17 are there: %v\n%s", only, got, out)
		}
	}
}

func TestProxyStatusJSON(t *testing.T) {
	t.Parallel()
	var got admin.ProxyList
	if err := json.Unmarshal([]byte(proxyStatus(t, someProxies(), "status", "-o", "json", "vm").out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Items) != 1 || got.Kind != "ProxyList" || got.Items[0].Types[3].Message != "unknown cluster\n\"outbound|80\"\n" {
		t.Errorf("%+v", got)
	}
	if out := proxyStatus(t, someProxies(), "status", "-o", "yaml", "vm").out; !strings.Contains(out, "kind: ProxyList\n") || !strings.Contains(out, "  name: vm-17\n") {
		t.Errorf("yaml: %s", out)
	}
	same(t, "none", proxyStatus(t, admin.ProxyList{}, "status", "-o", "json").out, "{\n  \"items\": []\n}\n")
}

func TestProxyStatusOfNone(t *testing.T) {
	t.Parallel()
	if o := proxyStatus(t, admin.ProxyList{}, "status"); o != (outcome{exitOK, "", "No proxy is connected to URL.\n"}) {
		t.Errorf("%+v", o)
	}
	if o := proxyStatus(t, someProxies(), "status", "x"); o != (outcome{exitOK, "", "No proxy whose node id contains \"x\" is connected to URL.\n"}) {
		t.Errorf("%+v", o)
	}
}
