package generate_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestGatewayOfTwelveServers: all names of a gateway with twelve servers, as dashboards,
// access logs and EnvoyFilters use them, and its listeners. One server lacks its
// certificate. Run it with -update after a change of behaviour.
func TestGatewayOfTwelveServers(t *testing.T) {
	t.Parallel()
	objects, err := os.ReadFile("testdata/twelve.in.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w := xdstest.NewWorld(t, string(objects))
	for _, name := range []string{"www", "star", "star-rsa", "clients"} {
		w.PutSecret("edge/"+name, secret.TLSCert, secret.TLSKey)
	}
	w.PutSecret("edge/clients-cacert", secret.Authority)
	var names strings.Builder
	var listeners []proto.Message
	node := xdstest.Node{Type: discovery.Router, Namespace: "edge", Labels: map[string]string{"app": "edge"}, Certified: true}
	for _, r := range w.Build(node, xdstest.Generators()...) {
		short := r.Body.GetTypeUrl()[strings.LastIndexByte(r.Body.GetTypeUrl(), '.')+1:]
		fmt.Fprintf(&names, "%s %s\n", short, r.Name)
		for _, need := range r.Needs {
			if need.TypeURL == resource.SecretType || need.TypeURL == resource.RouteType {
				fmt.Fprintf(&names, "  needs %s\n", need.Name)
			}
		}
		message, err := r.Body.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		if l, ok := message.(*listenerv3.Listener); ok {
			listeners = append(listeners, l)
		}
	}
	golden.Assert(t, names.String(), "twelve.names.txt")
	xdstest.Golden(t, "twelve.listeners.yaml", listeners...)
}
