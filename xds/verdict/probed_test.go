package verdict_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestAnEntryAwaitsItsProbe: an entry with a probe says so until somebody has reported its health,
// and what is missing: a proxy, a server for it, its namespace, its identity, or its agent.
func TestAnEntryAwaitsItsProbe(t *testing.T) {
	t.Parallel()
	const entry = `{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: web, namespace: shop, annotations: {portolan.io/probe: "tcpSocket: {port: 80}"}}, spec: {address: 10.0.0.1, serviceAccount: web}}`
	with := func(replica, namespace, identity string) *status.Proxy {
		return &status.Proxy{Node: "sidecar~10.0.0.1~vm-1.shop~" + namespace + ".svc.cluster.local", Type: "sidecar", Namespace: namespace, Addresses: []string{"10.0.0.1"}, Interception: "REDIRECT", Certified: true, Identity: identity, Replica: replica}
	}
	of := func(message string) []string {
		return []string{"shop/web nobody has reported the health of the workload: " + message}
	}
	const own, other = "spiffe://cluster.local/ns/shop/sa/web", "spiffe://cluster.local/ns/shop/sa/api"
	for name, c := range map[string]struct {
		entry   string
		proxies []*status.Proxy
		reports []*health.Report
		want    []string
	}{
		"nobody is there":                              {want: of("no proxy is known at 10.0.0.1")},
		"a proxy that is away":                         {proxies: []*status.Proxy{with("", "shop", own)}, want: of("its proxy, vm-1.shop, is connected to no server")},
		"a proxy of another namespace":                 {proxies: []*status.Proxy{with("r", "test", own)}, want: of("the proxy at its address, vm-1.shop, is of namespace test")},
		"a proxy of another account":                   {proxies: []*status.Proxy{with("r", "shop", other)}, want: of("its proxy, vm-1.shop, has proved to be " + other + ", and the entry is for the service account web")},
		"a proxy without a certificate":                {proxies: []*status.Proxy{with("r", "shop", "")}, want: of("its proxy, vm-1.shop, has proved to be nobody, and the entry is for the service account web")},
		"a proxy that is silent":                       {proxies: []*status.Proxy{with("r", "shop", own)}, want: of("its proxy, vm-1.shop, is connected and has said nothing of it")},
		"a proxy that is silent, and one that is away": {proxies: []*status.Proxy{with("", "test", other), with("r", "shop", own)}, want: of("its proxy, vm-1.shop, is connected and has said nothing of it")},
		"it is healthy":                                {reports: []*health.Report{{Namespace: "shop", Name: "web", Healthy: true}}},
		"it is not healthy":                            {reports: []*health.Report{{Namespace: "shop", Name: "web"}}},
		"the report is gone":                           {reports: []*health.Report{{Namespace: "shop", Name: "web", Healthy: true}, {Namespace: "shop", Name: "web", Unknown: true}}, want: of("no proxy is known at 10.0.0.1")},
		"an earlier one's":                             {reports: []*health.Report{{Namespace: "shop", Name: "web", UID: "earlier", Healthy: true}}, want: of("no proxy is known at 10.0.0.1")},
		"another one's":                                {reports: []*health.Report{{Namespace: "shop", Name: "api", Healthy: true}}, want: of("no proxy is known at 10.0.0.1")},
		"without a probe":                              {entry: strings.Replace(entry, "portolan.io/probe", "example.com/probe", 1)},
		"its health is ignored":                        {entry: strings.Replace(entry, "annotations: {", `annotations: {proxy.istio.io/health-checks-enabled: "false", `, 1)},
		"somebody has drained it":                      {entry: strings.Replace(entry, "annotations: {", `annotations: {`+health.DrainedAnnotation+`: "a disk", `, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.entry == "" {
				c.entry = entry
			}
			w := xdstest.NewWorld(t, c.entry)
			x := (*index.Index)(nil).Next(verdict.Facts{Mesh: w.Context()})
			for _, r := range c.reports {
				w.Report(r)
				x = x.Next(verdict.Facts{Mesh: w.Context()})
			}
			_, got := verdictsOf(t, x, verdict.Facts{Mesh: w.Context(), Proxies: proxies(c.proxies...)}, verdict.ProbeUnreported)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestHealthThatCannotBeRead: an entry whose source has a wrong word as its health says so, with a probe or
// without, until the source says something else.
func TestHealthThatCannotBeRead(t *testing.T) {
	t.Parallel()
	const entry = `{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: web, namespace: shop}, spec: {address: 10.0.0.1}}`
	of := func(r health.Report) *health.Report {
		r.Namespace, r.Name, r.Revision = "shop", "web", health.OfSource
		return &r
	}
	w := xdstest.NewWorld(t, entry)
	x := (*index.Index)(nil)
	for _, step := range []struct {
		report *health.Report
		want   []string
	}{
		{of(health.Report{Healthy: true}), nil},
		{of(health.Report{Unknown: true, Odd: "true"}), []string{`shop/web the condition Healthy is "true", so its health is not known`}},
		{of(health.Report{Healthy: true, Odd: "yes"}), []string{`shop/web the condition Healthy is "yes", so its health is not known`}},
		{of(health.Report{UID: "earlier", Unknown: true, Odd: "true"}), nil},
		{of(health.Report{}), nil},
	} {
		w.Report(step.report)
		x = x.Next(verdict.Facts{Mesh: w.Context()})
		_, got := verdictsOf(t, x, verdict.Facts{Mesh: w.Context()}, verdict.HealthUnread)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%+v: -want +got\n%s", step.report, diff)
		}
	}
}
