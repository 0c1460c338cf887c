package generate_test

import (
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/modules"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// noEffect lists the fields that no resource shows, and why.
func noEffect() map[string]string {
	return map[string]string{
		"Gateway.servers[].name":                   "a name for people",
		"RequestAuthentication.jwtRules[].timeout": "the leading server fetches keys by it",
		"Sidecar.egress[].port.name":               "a name for people",
		"Sidecar.ingress[].port.name":              "a name for people",
	}
}

// TestEveryServedFieldHasAnEffect removes, one at a time, each field that the examples of
// served fields set. Then some proxy must get other resources, or validation must refuse
// the object.
func TestEveryServedFieldHasAnEffect(t *testing.T) {
	longtest.OneGoroutine(t)
	t.Parallel()
	w, objects := xdstest.NewWorld(t), exampleObjects(t)
	put := func(some ...*config.Config) {
		clones := make([]*config.Config, len(some))
		for i, c := range some {
			clones[i] = &config.Config{Meta: c.Meta, Spec: proto.Clone(c.Spec.(proto.Message))}
		}
		w.Put(clones...)
	}
	put(objects...)
	w.SetMesh(reporters)
	for _, name := range []string{"www", "www-rsa"} {
		w.PutSecret("edge/"+name, secret.TLSCert, secret.TLSKey)
	}
	w.PutSecret("edge/clients", secret.Authority)
	w.Apply(fetchedKeys)
	w.SetModules(modules.Set{}.With(&modules.Module{Sum: "ec757060a4717f079363f6d1c96e04a83793174806fc5db3a230e6ab83c28fbb"}))
	before := slices.Collect(fingerprints(t, w))
	changed := func() bool {
		i := 0
		for got := range fingerprints(t, w) {
			if got != before[i] {
				return true
			}
			i++
		}
		return false
	}
	effective := map[string]bool{} // by path
	for _, object := range objects {
		eachField(object.Spec.(proto.Message).ProtoReflect(), object.Kind, func(path string, without func() (again func())) {
			if effective[path] {
				return
			}
			again := without()
			defer again()
			if _, err := schema.Pilot().Kind(object.GroupVersionKind).Validate(object); err != nil {
				effective[path] = true
				return
			}
			put(object)
			effective[path] = changed()
		})
		put(object)
	}
	if changed() {
		t.Error("the mesh is not what it was")
	}
	known := noEffect()
	for _, path := range slices.Sorted(maps.Keys(effective)) {
		if _, none := known[path]; none == effective[path] {
			t.Errorf("%s: it has an effect: %v", path, effective[path])
		}
	}
}

// reporters are the providers of the Telemetries.
const reporters = `
defaultProviders: {accessLogging: [envoy]}
extensionProviders:
- {name: spans, zipkin: {service: store.shop.mesh, port: 80}}
- {name: lines, envoyFileAccessLog: {path: /dev/null}}
`

// fetchedKeys are those of https://accounts.example/keys.
const fetchedKeys = `
apiVersion: portolan.io/v1
kind: KeySet
metadata: {name: keys-49c972c69d871acbf2d07e9cac84eb9f, namespace: istio-system}
spec: {url: "https://accounts.example/keys", keys: '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"VEMiHmn1M-oPSLpx9Z8tTbBDypx9uwH5BrfpyHJ0siI"}]}'}
`

// exampleObjects returns the objects in the examples of served fields, and further objects
// without which some fields have no effect.
func exampleObjects(t *testing.T) []*config.Config {
	t.Helper()
	var out []*config.Config
	for _, file := range []string{"../../storage/schema/testdata/served/mesh.yaml", "testdata/effects.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents, err := config.Decode(file, text, schema.Pilot().Type)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents {
			// The fields of WorkloadGroups make WorkloadEntries: TestEntryOf of discovery/registration.
			// Those of MeshConfig are tested by themselves.
			if d.Config.Kind != schema.WorkloadGroup.Kind && d.Config.Kind != schema.MeshConfig.Kind {
				out = append(out, d.Config)
			}
		}
	}
	return out
}

// fingerprints yields a text for each of several proxies. Meshes that differ for a proxy
// differ in its text.
func fingerprints(t *testing.T, w *xdstest.World) iter.Seq[string] {
	nodes := []xdstest.Node{
		{Namespace: "shop", Labels: map[string]string{"app": "productpage", "rack": "1"}, Locality: "eu/a", SelfDiscovery: true},
		{Namespace: "shop", IP: "192.0.2.4", Labels: map[string]string{"app": "front", "rack": "1"}, Locality: "eu/a"},
		{Namespace: "shop", IP: "192.0.2.5", Labels: map[string]string{"app": "reviews"}},
		{Namespace: "shop", IP: "192.0.2.6", Labels: map[string]string{"app": "reviews"}, Interception: discovery.InterceptionRedirect},
		{Namespace: "shop", IP: "192.0.2.30", Labels: map[string]string{"app": "captured"}, Interception: discovery.InterceptionRedirect, Certified: true},
		{Namespace: "shop", IP: "192.0.2.7", Labels: map[string]string{"app": "ratings"}, Interception: discovery.InterceptionRedirect},
		{Namespace: "shop", IP: "192.0.2.9", Labels: map[string]string{"app": "productpage"}, Interception: discovery.InterceptionRedirect, DNSCapture: true},
		{Namespace: "other", IP: "192.0.2.8"},
		{Namespace: "edge", IP: "192.0.2.12", Interception: discovery.InterceptionRedirect},
		{Namespace: "edge", IP: "192.0.2.11", Type: discovery.Router, Labels: map[string]string{"istio": "other"}},
		{Namespace: "edge", IP: "192.0.2.10", Type: discovery.Router, Labels: map[string]string{"istio": "ingressgateway", "gateway.networking.k8s.io/gateway-name": "edge"}, Locality: "us/b"},
	}
	return func(yield func(string) bool) {
		for _, n := range nodes {
			var out strings.Builder
			for _, r := range w.Build(n, generate.For(catalogue.Types(), n.Proxy(t).Type)...) {
				out.WriteString(r.Name + "=" + r.Version + "\n")
			}
			if !yield(out.String()) {
				return
			}
		}
	}
}

// eachField calls visit for each field that is set, in m and in its messages. visit gets
// its path without indexes and keys, and a function that clears the field and returns one
// that restores it.
func eachField(m protoreflect.Message, path string, visit func(path string, without func() (again func()))) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		at := path + "." + fd.JSONName()
		visit(at, func() func() {
			was := contents(m, fd)
			m.Clear(fd)
			return func() { m.Set(fd, was) }
		})
		switch {
		case fd.Message() == nil || fd.IsMap():
		case fd.IsList():
			for k := range m.Get(fd).List().Len() {
				eachField(m.Get(fd).List().Get(k).Message(), at+"[]", visit)
			}
		case fd.Message().ParentFile().Package() != "google.protobuf":
			eachField(m.Mutable(fd).Message(), at, visit)
		}
	}
}

// contents returns the value of a field. Lists and maps are copies, since the message
// empties its own when the field is cleared.
func contents(m protoreflect.Message, fd protoreflect.FieldDescriptor) protoreflect.Value {
	was := m.Get(fd)
	if !fd.IsList() && !fd.IsMap() {
		return was
	}
	out := m.NewField(fd)
	if fd.IsMap() {
		was.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			out.Map().Set(k, v)
			return true
		})
		return out
	}
	for i := range was.List().Len() {
		out.List().Append(was.List().Get(i))
	}
	return out
}
