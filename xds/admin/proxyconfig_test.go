package admin_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// holder is a server with two proxies, of which the first has resources.
type holder struct {
	nodes []*discovery.Proxy
	types []xds.TypeHoldings
}

func (h holder) Clients() []*discovery.Proxy { return h.nodes }

func (h holder) Holdings(_ context.Context, node string, types func(string) bool) (*xds.Holdings, error) {
	if node != h.nodes[0].ID {
		return nil, xds.ErrNotConnected
	}
	out := &xds.Holdings{Proxy: h.nodes[0], Variant: protocol.Delta, Revision: 815}
	for _, t := range h.types {
		if types == nil || types(t.Name) {
			out.Types = append(out.Types, t)
		}
	}
	return out, nil
}

type others []progress.Place

func (o others) Elsewhere() []progress.Place { return o }

func built(t *testing.T, name string, m proto.Message) *resource.Resource {
	t.Helper()
	r, err := resource.New(name, m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const secretType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

func someHolder(t *testing.T) holder {
	cluster := func(name, altStatName string) *resource.Resource {
		return built(t, name, &clusterv3.Cluster{Name: name, AltStatName: altStatName})
	}
	holding := func(name string, has, should *resource.Resource, objects ...config.Key) xds.Holding {
		return xds.Holding{Holding: protocol.Holding{Name: name, Acked: has, Desired: should}, Objects: objects}
	}
	refused := holding("b", cluster("b", "old"), cluster("b", "new"), config.Key{Kind: schema.DestinationRule, Namespace: "shop", Name: "b"})
	refused.Rejected = &protocol.Rejection{Message: "no", ResponseID: protocol.ResponseID{Revision: 814}}
	secret := built(t, "kubernetes://key", &tlsv3.Secret{Name: "kubernetes://key"})
	return holder{
		nodes: []*discovery.Proxy{
			xdstest.Node{IP: "10.1.0.8", Namespace: "shop"}.Proxy(t),
			{ID: "router~10.1.0.9~edge-1.edge~edge.svc.cluster.local", Name: "edge-1.edge", Namespace: "edge", IPAddresses: []string{"10.1.0.9"}},
		},
		types: []xds.TypeHoldings{
			{Name: "CDS", TypeURL: resource.ClusterType, Requested: true, Resources: []xds.Holding{
				holding("a", cluster("a", "same"), cluster("a", "same")), refused, holding("c", nil, cluster("c", "")), holding("d", cluster("d", ""), nil),
			}},
			{Name: "EDS", TypeURL: resource.EndpointType},
			{Name: "SDS", TypeURL: secretType, Requested: true, Resources: []xds.Holding{holding("kubernetes://key", secret, secret)}},
		},
	}
}

func proxyConfig(t *testing.T, h holder, o others, parameters url.Values) (string, error) {
	t.Helper()
	recorder := httptest.NewRecorder()
	err := admin.ServeProxyConfig(h, o, "cp-1:7/a")(recorder, httptest.NewRequest(http.MethodGet, admin.ProxyConfigPath+"?"+parameters.Encode(), nil))
	return recorder.Body.String(), err
}

func TestProxyConfig(t *testing.T) {
	t.Parallel()
	h := someHolder(t)
	for name, c := range map[string]struct {
		parameters url.Values
		want       string // the resources of each type, and their states
	}{
		"all":       {url.Values{}, "CDS 3: a SYNCED, b REJECTED, c STALE, d STALE; EDS 0: ; SDS 1: kubernetes://key SYNCED"},
		"one type":  {url.Values{"type": {"EDS"}}, "EDS 0: "},
		"differing": {url.Values{"type": {"CDS", "SDS"}, "differing": {"true"}}, "CDS 3: b REJECTED, c STALE, d STALE; SDS 1: "},
	} {
		c.parameters.Set("node", h.nodes[0].ID)
		text, err := proxyConfig(t, h, nil, c.parameters)
		if err != nil {
			t.Fatal(err)
		}
		var out admin.ProxyConfig
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if out.Kind != "ProxyConfig" || out.Server != "cp-1:7/a" || out.Revision != 815 || out.Proxy.Variant != "delta" || out.Proxy.Node != h.nodes[0].ID {
			t.Errorf("%s: %+v", name, out)
		}
		var types []string
		for _, typ := range out.Types {
			var resources []string
			for _, r := range typ.Resources {
				resources = append(resources, r.Name+" "+string(r.State))
			}
			total, _ := json.Marshal(typ.Total)
			types = append(types, typ.Name+" "+string(total)+": "+strings.Join(resources, ", "))
		}
		if got := strings.Join(types, "; "); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestProxyConfigShowsBothForms(t *testing.T) {
	t.Parallel()
	h := someHolder(t)
	text, err := proxyConfig(t, h, nil, url.Values{"node": {"10.1.0.8"}, "type": {"CDS"}})
	if err != nil {
		t.Fatal(err)
	}
	var out admin.ProxyConfig
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	statNames := func(r admin.ProxyResource) string {
		t.Helper()
		var names []string
		for _, get := range []func() (proto.Message, error){r.Has, r.Should} {
			m, err := get()
			if err != nil {
				t.Fatal(err)
			}
			if m == nil {
				names = append(names, "nothing")
				continue
			}
			names = append(names, m.(*clusterv3.Cluster).GetAltStatName())
		}
		return strings.Join(names, " ")
	}
	for i, want := range []string{"same same", "old new", "nothing ", " nothing"} {
		if got := statNames(out.Types[0].Resources[i]); got != want {
			t.Errorf("resource %d has and should have %q, want %q", i, got, want)
		}
	}
	b := out.Types[0].Resources[1]
	if b.RejectedRevision != 814 || b.Message != "no" || !slices.Equal(b.Objects, []string{"destinationrule/shop/b"}) || b.Version == b.IntendedVersion {
		t.Errorf("%+v", b)
	}
	if a := out.Types[0].Resources[0]; a.IntendedVersion != "" || a.Intended != nil || !strings.Contains(string(a.Config), "alt_stat_name") {
		t.Errorf("%+v", a)
	}
}

// TestProxyConfigShowsCertificates: of a secret it shows the certificates or their file, but
// neither key nor message.
func TestProxyConfigShowsCertificates(t *testing.T) {
	t.Parallel()
	pair := secrettest.New(t, time.Hour, "www.shop.example")
	both := append(slices.Clone(pair.Key), pair.Cert...) // some users keep both in one entry
	h := someHolder(t)
	var resources []xds.Holding
	for _, m := range []*tlsv3.Secret{
		socket.CertificateSecret("kubernetes://www", both, pair.Key), socket.RootsSecret("kubernetes://www-cacert", pair.Cert, nil),
		socket.CertificateFileSecret("file-cert:/a~/b", "/a", "/b"), socket.RootsFileSecret("file-root:/c", "/c", ""),
	} {
		r := built(t, m.GetName(), m)
		resources = append(resources, xds.Holding{Holding: protocol.Holding{Name: m.GetName(), Acked: r, Desired: r}})
	}
	h.types = []xds.TypeHoldings{{Name: "SDS", TypeURL: secretType, Requested: true, Resources: resources}}
	text, err := proxyConfig(t, h, nil, url.Values{"node": {h.nodes[0].ID}, "type": {"SDS"}})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Key)
	for _, form := range []string{string(pair.Key), base64.StdEncoding.EncodeToString(block.Bytes)[:60], base64.StdEncoding.EncodeToString(pair.Key)[:60], hex.EncodeToString(block.Bytes)[:60], "PRIVATE"} {
		if strings.Contains(text, form) {
			t.Errorf("the key is shown as %q", form)
		}
	}
	var c admin.ProxyConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range c.Types[0].Resources {
		line := fmt.Sprint(r.Name, " ", r.Secret.Kind, " ", r.Secret.File, len(r.Config))
		for _, one := range r.Secret.Certificates {
			line += fmt.Sprint(" ", one.Names, one.Serial == pair.Parsed.SerialNumber.Text(16), one.NotAfter.Equal(pair.Parsed.NotAfter))
		}
		got = append(got, line)
	}
	want := []string{
		"kubernetes://www certificate 0 [www.shop.example] true true", "kubernetes://www-cacert authorities 0 [www.shop.example] true true",
		"file-cert:/a~/b certificate /a0", "file-root:/c authorities /c0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestProxyConfigKeepsSecrets: of a secret without a certificate it shows only name and state.
func TestProxyConfigKeepsSecrets(t *testing.T) {
	t.Parallel()
	h := someHolder(t)
	text, err := proxyConfig(t, h, nil, url.Values{"node": {h.nodes[0].ID}, "type": {"SDS"}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `"resources":[{"name":"kubernetes://key","state":"SYNCED"}]}]}`
	if !strings.HasSuffix(text, want) {
		t.Errorf("got %s, want %s at its end", text, want)
	}
}

func TestProxyConfigFindsTheProxy(t *testing.T) {
	t.Parallel()
	seen := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	elsewhere := others{
		{Node: "sidecar~10.2.0.1~vm-2.shop~shop.svc.cluster.local", Server: "cp-2:8/b", API: "http://127.0.0.1:15081", Seen: seen},
		{Node: "sidecar~10.2.0.2~vm-3.shop~shop.svc.cluster.local", Server: "cp-3:9/c", Seen: seen},
		{Node: "sidecar~10.2.0.9~vm-9.shop~shop.svc.cluster.local", Seen: seen},
	}
	h := someHolder(t)
	elsewhere = append(elsewhere, progress.Place{Node: h.nodes[0].ID, Server: "cp-2:8/b"}) // it has just moved here from that server
	for node, want := range map[string]string{                                             // "" for the proxy that is there, else the code and words
		h.nodes[0].ID: "", "10.1.0.8": "", "~10.1.0.8~": "", h.nodes[0].Name: "",
		"":              "400 say of which proxy",
		"nobody":        "404 no proxy is called nobody",
		"svc.cluster":   "400 such as",
		"vm-9":          "404 is connected to no server; it was last seen at 2026-01-31 12:00:00 UTC",
		"vm-2":          "421 on machine cp-2, run the command with --server http://127.0.0.1:15081",
		"shop/vm-2":     "421 cp-2:8/b",
		"10.2.0.1":      "421 cp-2:8/b",
		"vm-3":          "421 connected to another server, cp-3:9/c: ask that server",
		"edge-1":        "503 has just disconnected",
		"~10.2.0.1~vm-": "421 cp-2:8/b",
	} {
		_, err := proxyConfig(t, h, elsewhere, url.Values{"node": {node}, "type": {"EDS"}})
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", node, err)
			}
			continue
		}
		code, words, _ := strings.Cut(want, " ")
		var status *apierrors.StatusError
		if !errors.As(err, &status) || http.StatusText(int(status.ErrStatus.Code)) == "" || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: got %v, want %s", node, err, want)
			continue
		}
		if got, _ := json.Marshal(status.ErrStatus.Code); string(got) != code {
			t.Errorf("%s: got code %s, want %s", node, got, code)
		}
	}
}

// TestProxyConfigOfANamespace: only the proxies of the namespace count, on any server.
func TestProxyConfigOfANamespace(t *testing.T) {
	t.Parallel()
	h := someHolder(t)
	there := others{{Node: "sidecar~10.2.0.1~vm-2.shop~shop.svc.cluster.local", Namespace: "edge", Server: "cp-2:8/b", API: "http://127.0.0.1:15081"}}
	for _, c := range []struct{ node, namespace, want string }{
		{"10.1.0.8", "shop", ""},
		{"10.1.0.8", "edge", "no proxy in namespace edge is called 10.1.0.8"},
		{"10.1.0", "shop", ""}, // edge has one that begins so, too
		{"edge-1", "shop", "no proxy in namespace shop is called edge-1"},
		{"vm-2", "edge", "is connected to another server"},
		{"vm-2", "shop", "no proxy in namespace shop is called vm-2"},
	} {
		_, err := proxyConfig(t, h, there, url.Values{"node": {c.node}, "namespace": {c.namespace}})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s in %s: %v", c.node, c.namespace, err)
		}
	}
}

// TestProxyConfigOfAnotherServer: an error that names another server gives a query that only
// that server answers.
func TestProxyConfigOfAnotherServer(t *testing.T) {
	t.Parallel()
	h := someHolder(t)
	there := others{{Node: "sidecar~10.2.0.1~vm-2.shop~shop.svc.cluster.local", Server: "cp-2:8/b", API: "http://127.0.0.1:15081"}}
	_, err := proxyConfig(t, h, there, url.Values{"node": {"vm-2"}})
	query, server, ok := admin.ConnectedElsewhere(err, url.Values{"node": {"vm-2"}, "type": {"CDS"}})
	if !ok || server != "http://127.0.0.1:15081" || query.Encode() != "node=vm-2&server=cp-2%3A8%2Fb&type=CDS" {
		t.Errorf("%q %q %v", query, server, ok)
	}
	_, err = proxyConfig(t, h, nil, url.Values{"node": {h.nodes[0].ID}, "server": {"cp-2:8/b"}})
	if err == nil || !strings.Contains(err.Error(), "another server answers here") {
		t.Errorf("a query that is meant for another server: %v", err)
	}
	if _, _, ok := admin.ConnectedElsewhere(err, nil); ok {
		t.Error("an error that names no server leads to one")
	}
	if _, err := proxyConfig(t, h, nil, url.Values{"node": {h.nodes[0].ID}, "server": {"cp-1:7/a"}}); err != nil {
		t.Errorf("a query that is meant for this server: %v", err)
	}
}

// TestProxyConfigSecretsAreNeeded: a secret has the clusters and listeners that the proxy
// acknowledged with it. Asked for secrets alone, the answer has no other type.
func TestProxyConfigSecretsAreNeeded(t *testing.T) {
	t.Parallel()
	h := someHolder(t)
	needing := func(name string, m proto.Message) *resource.Resource {
		r := built(t, name, m)
		r.Needs = []resource.Need{{TypeURL: resource.SecretType, Name: "s", Kind: resource.Once}, {TypeURL: resource.SecretType, Name: "s", Kind: resource.Once}}
		return r
	}
	pair := secrettest.New(t, time.Hour, "www.shop")
	known, unused := built(t, "s", socket.CertificateSecret("s", pair.Cert, pair.Key)), built(t, "u", socket.CertificateSecret("u", pair.Cert, pair.Key))
	of := func(acked, desired *resource.Resource) xds.Holding {
		name := "only desired"
		if acked != nil {
			name = acked.Name
		}
		return xds.Holding{Holding: protocol.Holding{Name: name, Acked: acked, Desired: desired}}
	}
	a, b, l := needing("a", &clusterv3.Cluster{Name: "a"}), needing("b", &clusterv3.Cluster{Name: "b"}), needing("l", &listenerv3.Listener{Name: "l"})
	h.types = []xds.TypeHoldings{
		{Name: "CDS", TypeURL: resource.ClusterType, Resources: []xds.Holding{of(b, b), of(a, nil), of(nil, needing("c", &clusterv3.Cluster{Name: "c"}))}},
		{Name: "LDS", TypeURL: resource.ListenerType, Resources: []xds.Holding{of(l, l)}},
		{Name: "SDS", TypeURL: secretType, Resources: []xds.Holding{of(known, known), of(unused, unused)}},
	}
	for query, want := range map[string]string{"SDS": "SDS", "": "CDS LDS SDS"} {
		parameters := url.Values{"node": {h.nodes[0].ID}}
		if query != "" {
			parameters.Set("type", query)
		}
		text, err := proxyConfig(t, h, nil, parameters)
		if err != nil {
			t.Fatal(err)
		}
		var got admin.ProxyConfig
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, typ := range got.Types {
			types = append(types, typ.Name)
		}
		if strings.Join(types, " ") != want {
			t.Fatalf("asked for %q it has %q", query, types)
		}
		secrets := got.Types[len(got.Types)-1].Resources
		if by := secrets[0].Secret.NeededBy; !slices.Equal(by, []string{"cluster a", "cluster b", "listener l"}) || secrets[1].Secret.NeededBy != nil {
			t.Errorf("needed by %q and %q", by, secrets[1].Secret.NeededBy)
		}
	}
}
