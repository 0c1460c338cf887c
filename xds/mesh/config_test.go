package mesh_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestAFieldConcernsWhoReadIt: when one field of the mesh configuration changes, only
// resources that read that field get other answers.
func TestAFieldConcernsWhoReadIt(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.HTTPService("shop/a", "a.example", "10.1.0.1"),
		xdstest.Object("DestinationRule", "shop/a", "{host: a.example, subsets: [{name: v1, labels: {v: x}}]}"),
		xdstest.Object("VirtualService", "shop/a", "{hosts: [a.example], http: [{route: [{destination: {host: a.example}}]}]}"))
	node := xdstest.Node{Namespace: "shop", Interception: discovery.InterceptionRedirect}
	const first, trustDomain = "connectTimeout: 1s\n", mesh.Field("trust_domain")
	for _, tc := range []struct {
		document string
		field    mesh.Field
	}{
		{"connectTimeout: 2s\n", mesh.ConnectTimeout},
		{first + "accessLogFile: /dev/stdout\n", mesh.AccessLogFile},
		{first + "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n", mesh.OutboundTrafficPolicy},
		{first + "trustDomain: other.example\n", trustDomain},
	} {
		w.SetMesh(first)
		view := w.View(node)
		built, readers := map[string][]mesh.Dependency{}, 0
		for _, g := range xdstest.Generators() {
			for name := range g.Affected(view, mesh.Diff(nil, w.Context())) {
				recording := view.Recording()
				if _, err := generate.Build(g, recording, name); err != nil {
					t.Fatal(err)
				}
				built[g.TypeURL()+" "+name] = recording.Dependencies()
			}
		}
		w.SetMesh(tc.document)
		now := w.View(node)
		for name, dependencies := range built {
			reads, holds := false, true
			for _, d := range dependencies {
				reads = reads || d.Query.Row == mesh.RowKey{Table: mesh.MeshConfig, Key: string(tc.field)}
				holds = holds && now.Answer(d.Query) == d.Answer
			}
			if reads {
				readers++
			}
			if reads == holds {
				t.Errorf("%s: %s has read it: %v, and is to be built again: %v", tc.field, name, reads, !holds)
			}
		}
		if some := tc.field != trustDomain; (readers > 0) != some || len(built) == readers {
			t.Errorf("%s: %d of %d resources have read it", tc.field, readers, len(built))
		}
	}
}
