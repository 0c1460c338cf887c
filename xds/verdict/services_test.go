package verdict_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// moments is a Source whose facts a test replaces.
type moments struct{ now verdict.Facts }

func (m *moments) Facts() (verdict.Facts, bool) { return m.now, true }

func (m *moments) WouldBe([]storage.Op) (is, would verdict.Facts, known bool) {
	return m.now, m.now, true
}

func (*moments) Handled(ctx context.Context) error { return ctx.Err() }

// found is a mesh with one service, whose endpoints a registry has.
func found(in mesh.Inputs, provider discovery.Provider, endpoints ...*discovery.Endpoint) *mesh.PushContext {
	const name = host.Name("web.consul")
	key := rows.Key(name, "shop")
	service := &discovery.Service{
		Hostname: name, Address: discovery.UnspecifiedIP, Ports: []discovery.Port{{Name: "http", Number: 80, Protocol: discovery.HTTP}},
		Attributes: discovery.Attributes{Provider: provider, Name: "web", Namespace: "shop"},
	}
	in.Services = pmap.Map[*mesh.ServiceRow]{}.Set(key, rows.NewService([]*discovery.Service{service}, endpoints))
	in.Endpoints = pmap.Map[*mesh.EndpointRow]{}.Set(key, &mesh.EndpointRow{
		Hostname: name, Namespace: "shop", Endpoints: endpoints,
		Shards: []rows.ShardSize{{Shard: discovery.ShardKey{Provider: provider}, Count: len(endpoints)}},
	})
	return mesh.New(in)
}

// TestVerdictsOfRegistries: what endpoints without an object say of their sidecars is compared with
// the known ones. Of a sidecar that is missing they are told after an hour.
func TestVerdictsOfRegistries(t *testing.T) {
	t.Parallel()
	at := func(address, mode string) *discovery.Endpoint {
		e := &discovery.Endpoint{Address: address, ServicePortName: "http", Port: 8080, TLSMode: discovery.TLSModeDisabled, Namespace: "shop"}
		if mode != "" {
			e.TLSMode, e.Labels = mode, labels.Instance{labels.TLSMode: mode}
		}
		return e
	}
	plain, mutual, disabled := at("10.0.0.1", ""), at("10.0.0.1", "istio"), at("10.0.0.1", "disabled")
	other := at("10.0.0.1", "")
	other.Port = 8081
	known := certified("a", "10.0.0.1")
	gone := certified("a", "10.0.0.1")
	gone.Replica = ""
	bare := certified("a", "10.0.0.1")
	bare.Certified = false
	const start = 1_000_000
	type step struct {
		minute    int64
		endpoints []*discovery.Endpoint
	}
	for name, c := range map[string]struct {
		provider discovery.Provider
		steps    []step
		proxies  []*status.Proxy
		want     string
	}{
		"of Consul, a sidecar that nothing tells of": {discovery.Consul, []step{{start, []*discovery.Endpoint{plain, other}}}, []*status.Proxy{known},
			"PTL0364 1 endpoint is behind a sidecar with a certificate of the mesh, and Consul does not say so: 10.0.0.1 (a). Clients send plaintext: add the metadata portolan-tls-mode: istio"},
		"of a file, a sidecar that nothing tells of": {discovery.File, []step{{start, []*discovery.Endpoint{plain, at("10.0.0.2", "")}}}, []*status.Proxy{known, certified("b", "10.0.0.2")},
			"PTL0364 2 endpoints are behind a sidecar with a certificate of the mesh, and File does not say so: 10.0.0.1 (a), 10.0.0.2 (b). Clients send plaintext: add the labels security.istio.io/tlsMode: istio"},
		"a sidecar without a certificate":     {discovery.Consul, []step{{start, []*discovery.Endpoint{plain}}}, []*status.Proxy{bare}, ""},
		"a sidecar that is gone":              {discovery.Consul, []step{{start, []*discovery.Endpoint{plain}}}, []*status.Proxy{gone}, ""},
		"a sidecar that is to be passed by":   {discovery.Consul, []step{{start, []*discovery.Endpoint{disabled}}}, []*status.Proxy{known}, ""},
		"a label, and nobody yet":             {discovery.Consul, []step{{start, []*discovery.Endpoint{mutual}}, {start + 59, []*discovery.Endpoint{mutual}}}, nil, ""},
		"a label, and one that is gone":       {discovery.Consul, []step{{start, []*discovery.Endpoint{mutual}}, {start + 60, []*discovery.Endpoint{mutual}}}, []*status.Proxy{gone}, ""},
		"a label, and one without a secret":   {discovery.Consul, []step{{start, []*discovery.Endpoint{mutual}}, {start + 60, []*discovery.Endpoint{mutual}}}, []*status.Proxy{bare}, "PTL0365"},
		"a label that came later":             {discovery.Consul, []step{{start, []*discovery.Endpoint{plain}}, {start + 60, []*discovery.Endpoint{mutual}}}, nil, ""},
		"an endpoint that was away meanwhile": {discovery.Consul, []step{{start, []*discovery.Endpoint{mutual}}, {start + 50, nil}, {start + 60, []*discovery.Endpoint{mutual}}}, nil, ""},
		"a label, and nobody for an hour": {discovery.Consul, []step{{start, []*discovery.Endpoint{mutual}}, {start + 60, []*discovery.Endpoint{mutual}}}, nil,
			"PTL0365 1 endpoint is said by Consul to take mutual TLS, and for an hour no sidecar with a certificate of the mesh was known there: 10.0.0.1. What clients with a certificate send is refused: start the sidecars, or set the metadata portolan-tls-mode: disabled"},
		"of a ServiceEntry, which has verdicts of its own": {discovery.External, []step{{start, []*discovery.Endpoint{mutual}}, {start + 60, []*discovery.Endpoint{mutual}}}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, source := xdstest.NewWorld(t).Context().Inputs(), &moments{}
			k := index.NewKeeper(source)
			var got []string
			for _, s := range c.steps {
				source.now = verdict.Facts{Mesh: found(in, c.provider, s.endpoints...), Proxies: proxies(c.proxies...), Minute: s.minute}
				list, _ := k.Findings(nil)
				got = nil
				for _, f := range list.Items {
					if o := f.Object; o.Kind != "Service" || o.Namespace != "shop" || o.Name != "web.consul" {
						t.Errorf("on %+v", o)
					}
					got = append(got, fmt.Sprintf("%s %s", f.Code, f.Text()))
				}
				var alone []string
				for row := range source.now.Mesh.HostRows() {
					for _, f := range k.OfService(row.Services[0]) {
						alone = append(alone, fmt.Sprintf("%s %s", f.Code, f.Text()))
					}
				}
				if !slices.Equal(alone, got) {
					t.Errorf("of the service alone %q, of all %q", alone, got)
				}
			}
			if text := strings.Join(got, "; "); !strings.HasPrefix(text, c.want) || c.want == "" && text != "" || len(got) > 1 {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestKeeperRemembersSinceWhen: a keeper that nobody asks knows since when endpoints take mutual
// TLS.
func TestKeeperRemembersSinceWhen(t *testing.T) {
	t.Parallel()
	in := xdstest.NewWorld(t).Context().Inputs()
	now := found(in, discovery.Consul, &discovery.Endpoint{Address: "10.0.0.1", ServicePortName: "http", Port: 8080, TLSMode: discovery.TLSModeIstio})
	source := &moments{verdict.Facts{Mesh: now, Minute: 1000}}
	k := index.NewKeeper(source)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := k.Run(ended); err != nil {
		t.Fatal(err)
	}
	source.now.Minute += 60
	if list, _ := k.Findings(nil); len(list.Items) != 1 {
		t.Errorf("%+v", list.Items)
	}
}
