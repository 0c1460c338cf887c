package proxies

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/progress"
)

func someProxies() admin.ProxyList {
	synced := func(name string, ago time.Duration) progress.TypeStatus {
		return progress.TypeStatus{Name: name, State: protocol.Synced, Revision: 815, Sent: clitest.Noon.Add(-ago), Answered: clitest.Noon.Add(-ago)}
	}
	return admin.ProxyList{TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "ProxyList"}, Configuration: 812, Server: "cp-2:7/0a1b2c3d",
		Elsewhere: map[string]int{"cp-1:7/44556677": 40},
		Gone:      []progress.Place{{Node: "sidecar~10.0.0.9~vm-9.shop~shop.svc.cluster.local", Seen: clitest.Noon.Add(-3 * time.Minute)}},
		Items: []progress.ProxyStatus{
			{Node: "router~10.0.0.2~edge-1.edge~edge.svc.cluster.local", Name: "edge-1", Type: "router", Namespace: "edge", Variant: "delta", Envoy: "1.40.0", Revision: 814,
				Types: []progress.TypeStatus{
					synced("CDS", 3*time.Minute), synced("EDS", 9*time.Second),
					{Name: "LDS", State: protocol.Stale, Sent: clitest.Noon.Add(-41 * time.Second), Answered: clitest.Noon.Add(-time.Hour), StaleSince: clitest.Noon.Add(-41 * time.Second), AckedNonce: "812-4", SentNonce: "815-5"},
					{Name: "RDS", State: protocol.NotSent},
				}},
			{Node: "sidecar~10.0.0.17~vm-17.shop~shop.svc.cluster.local", Name: "vm-17", Type: "sidecar", Namespace: "shop", Variant: "delta", Revision: 812, CertificateEnds: clitest.Noon.Add(20 * time.Hour),
				Machine: &node.Facts{Agent: "1.4.0", Envoy: "1.40.0", EnvoySince: clitest.Noon.Add(-3 * 24 * time.Hour), CertificateEnds: clitest.Noon.Add(20 * time.Hour), Capture: "in force"},
				Types: []progress.TypeStatus{
					synced("CDS", 26*time.Hour), synced("EDS", 0), synced("LDS", 3*time.Hour),
					{Name: "RDS", State: protocol.Rejected, Answered: clitest.Noon.Add(-12 * time.Second), StaleSince: clitest.Noon.Add(-12 * time.Second), RejectedRevision: 815, RejectedNonce: "815-9", AckedNonce: "812-8", Objects: []string{"virtualservice/shop/reviews"}, Message: "unknown cluster\n\"outbound|80\"\n",
						Refused: []progress.RefusedResource{{Name: "80", Revision: 815, Objects: []string{"virtualservice/shop/reviews"}, Message: "unknown cluster\n\"outbound|80\"\n"}}},
				}},
		}}
}

// proxyStatus runs proxy status at noon against a server that has the proxies.
func proxyStatus(t *testing.T, list admin.ProxyList, args ...string) clitest.Outcome {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != admin.ProxiesPath {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer server.Close()
	o := line.DoAs(t, "", func(e *cli.Environment) { e.Now = func() time.Time { return clitest.Noon } }, append([]string{"proxy", "--server", server.URL}, args...)...)
	if o.Code != exit.OK {
		t.Fatal(o.Err)
	}
	return clitest.Outcome{Code: o.Code, Out: o.Out, Err: strings.ReplaceAll(o.Err, server.URL, "URL")}
}

func TestProxyStatus(t *testing.T) {
	t.Parallel()
	o := proxyStatus(t, someProxies(), "status")
	golden.Assert(t, o.Out, "proxy-status.txt")
	if list := proxyStatus(t, someProxies(), "list"); list != o {
		t.Errorf("proxy list: %+v", list)
	}
	for line := range strings.SplitSeq(o.Out, "\n") {
		if !strings.HasPrefix(line, " ") && len(line) > 120 {
			t.Errorf("a line of the table has %d columns: %s", len(line), line)
		}
	}
	golden.Assert(t, proxyStatus(t, someProxies(), "status", "-o", "wide").Out, "proxy-status-wide.txt")
	one := proxyStatus(t, someProxies(), "status", "edge-1").Out
	if strings.Contains(one, "vm-17") || !strings.Contains(one, "edge-1") {
		t.Errorf("one proxy: %s", one)
	}
	for only, want := range map[string][2]bool{"rejected": {false, true}, "stale": {true, false}, "rejected,stale": {true, true}} {
		out := proxyStatus(t, someProxies(), "status", "--only", only).Out
		if got := [2]bool{strings.Contains(out, "edge-1"), strings.Contains(out, "vm-17")}; got != want {
			t.Errorf("--only %s: edge-1 and vm-17 are there: %v\n%s", only, got, out)
		}
	}
}

// TestProxyStatusOfControlPlanes: control planes have their own table, with or without
// proxies.
func TestProxyStatusOfControlPlanes(t *testing.T) {
	t.Parallel()
	plane := func(name string, revision int64, types ...progress.TypeStatus) progress.ProxyStatus {
		p := progress.ProxyStatus{Node: "sidecar~~" + name + "~hub", Name: name, Type: "api", Namespace: "hub", Variant: "delta", Revision: revision, Types: types}
		for _, t := range types {
			if !t.StaleSince.IsZero() {
				p.StaleSince = t.StaleSince
			}
		}
		return p
	}
	kind := func(name string, state protocol.State) progress.TypeStatus {
		out := progress.TypeStatus{Name: name, State: state, Answered: clitest.Noon.Add(-time.Minute)}
		if state != protocol.Synced {
			out.StaleSince = clitest.Noon.Add(-3 * time.Minute)
		}
		return out
	}
	list := someProxies()
	list.Elsewhere, list.Gone = nil, nil
	planes := []progress.ProxyStatus{
		plane("istiod-1", 815, kind("Gateway", protocol.Synced), kind("ServiceEntry", protocol.Synced)),
		plane("istiod-2", 814, kind("Gateway", protocol.Stale), kind("ServiceEntry", protocol.Stale), kind("Sidecar", protocol.Synced)),
	}
	list.Items = append(list.Items, planes...)
	golden.Assert(t, proxyStatus(t, list, "status").Out, "proxy-status-control-planes.txt")
	list.Items = planes
	if out := proxyStatus(t, list, "status", "-o", "wide").Out; strings.Contains(out, "NODE") || !strings.HasPrefix(out, "CONTROL PLANE") {
		t.Errorf("without proxies:\n%s", out)
	}
}

// TestProxiesOffline: a proxy that left recently is named. Those away for long, or beyond the
// limit, are counted.
func TestProxiesOffline(t *testing.T) {
	t.Parallel()
	gone := func(recent, long int) (all []progress.Place) {
		for i := range recent {
			all = append(all, progress.Place{Node: fmt.Sprintf("sidecar~10.0.0.9~vm-%d.shop~d", i), Seen: clitest.Noon.Add(-time.Duration(i) * time.Minute)})
		}
		for i := range long {
			all = append(all, progress.Place{Node: fmt.Sprintf("sidecar~10.0.0.9~old-%d.shop~d", i), Seen: clitest.Noon.Add(-2 * time.Hour)})
		}
		return all
	}
	for name, c := range map[string]struct {
		recent, long int
		args         []string
		named        int
		summary      string
	}{
		"nobody":               {0, 0, nil, 0, ""},
		"one just now":         {1, 0, nil, 1, ""},
		"one for long":         {0, 1, nil, 0, "  offline  1 proxy  for more than 1h: see portolan proxy status --all\n"},
		"some of both":         {2, 12, nil, 2, "  offline  12 proxies  for more than 1h: see portolan proxy status --all\n"},
		"many just now":        {30, 5, nil, 10, "  offline  25 proxies more  see portolan proxy status --all\n"},
		"all are asked for":    {30, 5, []string{"--all"}, 35, ""},
		"one is asked for":     {2, 1, []string{"old-0"}, 1, ""},
		"as many as are named": {10, 0, nil, 10, ""},
	} {
		list := admin.ProxyList{Gone: gone(c.recent, c.long)}
		out := proxyStatus(t, list, append([]string{"status"}, c.args...)...).Out
		if named := strings.Count(out, "last seen "); named != c.named {
			t.Errorf("%s: %d are named, want %d:\n%s", name, named, c.named, out)
		}
		if got := summaryOf(out); got != strings.Join(strings.Fields(c.summary), " ") {
			t.Errorf("%s: %q, want %q", name, got, c.summary)
		}

		if len(c.args) > 0 {
			continue
		}
		waiting := progress.Distribution{Revision: 7, Offline: len(list.Gone), Gone: list.Gone[:min(len(list.Gone), 20)]}
		waited, _ := serving(t, func(*http.Request) any { return admin.Propagation{Distribution: waiting} }, "wait", "--revision", "7")
		if named := strings.Count(waited.Out, "last seen "); named != c.named || summaryOf(waited.Out) != strings.Join(strings.Fields(c.summary), " ") {
			t.Errorf("%s: wait names %d, want %d and %q:\n%s", name, named, c.named, c.summary, waited.Out)
		}
	}
}

// summaryOf returns the line that counts the offline proxies which are not named.
func summaryOf(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "--all") {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	return ""
}

func TestProxyStatusJSON(t *testing.T) {
	t.Parallel()
	var got admin.ProxyList
	if err := json.Unmarshal([]byte(proxyStatus(t, someProxies(), "status", "-o", "json", "vm").Out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Items) != 1 || got.Kind != "ProxyList" || got.Items[0].Types[3].Message != "unknown cluster\n\"outbound|80\"\n" {
		t.Errorf("%+v", got)
	}
	if out := proxyStatus(t, someProxies(), "status", "-o", "yaml", "vm").Out; !strings.Contains(out, "kind: ProxyList\n") || !strings.Contains(out, "  name: vm-17\n") {
		t.Errorf("yaml: %s", out)
	}
	clitest.Same(t, "none", proxyStatus(t, admin.ProxyList{}, "status", "-o", "json").Out, "{\n  \"items\": []\n}\n")
}

func TestProxyStatusOfNone(t *testing.T) {
	t.Parallel()
	if o := proxyStatus(t, admin.ProxyList{}, "status"); o != (clitest.Outcome{Code: exit.OK, Err: "No proxy is connected.\n"}) {
		t.Errorf("%+v", o)
	}
	if o := proxyStatus(t, admin.ProxyList{}, "status", "--only", "rejected,stale"); o != (clitest.Outcome{Code: exit.OK, Err: "No proxy with a type that is REJECTED or STALE is connected.\n"}) {
		t.Errorf("%+v", o)
	}
	if o := proxyStatus(t, someProxies(), "status", "x"); o != (clitest.Outcome{Code: exit.OK, Out: "  elsewhere  40 proxies  connected to server cp-1:7, which cannot be asked from here\n", Err: "No proxy whose node id contains \"x\" is connected.\n"}) {
		t.Errorf("%+v", o)
	}
}
