package integration

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestSoakConfigOfKubernetes follows Kubernetes' own server with the least rights, and does harm
// to it: afterwards the objects here are those there.
func TestSoakConfigOfKubernetes(t *testing.T) {
	if longtest.Soak(t) == 0 {
		t.Skip("make soak runs kube-apiserver, which takes minutes to build")
	}
	if _, err := os.Stat(kubeAPIServerBinary); err != nil {
		t.Fatalf("there is no kube-apiserver (%v): run make kube-apiserver", err)
	}
	k := &kubeCluster{t, startKubeAPIServer(t, kubeAPIServerBinary, withRBAC)}
	k.must("POST", rbacPath+"clusterroles", clusterRole(t, objectsPage))
	k.bind("portolan-istio", "follower")
	for _, name := range []string{"one", "two"} {
		k.entry(name)
	}
	const networking = "/apis/networking.istio.io/v1/namespaces/shop/"
	k.must("POST", networking+"virtualservices", `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"odd"},
		"spec":{"hosts":["a..example"],"http":[{"route":[{"destination":{"host":"one.example"}}]}]}}`)
	k.must("POST", networking+"destinationrules", rule)
	file := kubeconfig(t, `server: "`+k.api.url+`", certificate-authority: "`+k.api.ca+`"`, "{token: "+followerToken+"}")
	s := startServer(t, serverOptions{args: []string{"--config-kube", file, "--write-status"}})
	const name = "kube://mesh"
	s.awaitSource(name, "", 3)

	k.condition("serviceentries", "one", "Accepted", "True", "was seen by the servers")
	k.condition("virtualservices", "odd", "Accepted", "False", "spec.hosts[0]")
	if out := s.must("", "source", "describe", name); !strings.Contains(out, "spec.hosts[0]") {
		t.Errorf("the fault of an object is not shown: %s", out)
	}
	const refused = "Warning: source " + name + " has objects of the kind VirtualService that are not served as they stand there (1, such as virtualservice/shop/odd): see portolan source describe " + name + "\n"
	if out := s.try("", "get", "virtualservices", "-A", "-o", "json"); out.code != 0 || !strings.HasPrefix(out.stderr, refused) {
		t.Errorf("get does not warn of what is refused: %+v", out)
	}
	k.expectStatusRights(s, name)
	version := k.get(networking + "serviceentries/one").GetResourceVersion()

	k.api.process.Kill()
	s.awaitSource(name, "connection refused", 3)
	k.api.start(t)
	k.entry("three")
	k.must("DELETE", networking+"serviceentries/two", "")
	s.awaitSource(name, "", 3)
	k.expectSame(s)

	k.must("DELETE", rbacPath+"clusterrolebindings/portolan-istio-follower", "")
	k.api.process.Kill() // which ends all watches
	k.api.start(t)
	s.awaitSource(name, "the account follower may not list", 3)
	k.bind("portolan-istio", "follower")
	s.awaitSource(name, "", 3)

	restore := k.deleteDefinition("destinationrules.networking.istio.io")
	s.awaitSource(name, "", 2)
	restore()
	k.create(networking+"destinationrules", rule)
	s.awaitSource(name, "", 3)
	k.expectSame(s)
	if now := k.get(networking + "serviceentries/one").GetResourceVersion(); now != version {
		t.Errorf("an object that did not change was written again: %s after %s", now, version)
	}
}

const rule = `{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{"name":"one"},"spec":{"host":"one.example"}}`

// clusterRole returns the role that a page in docs/tasks shows, in JSON.
func clusterRole(t testing.TB, page string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/tasks/" + page)
	if err != nil {
		t.Fatal(err)
	}
	role := regexp.MustCompile(`(?m)^apiVersion: rbac\.authorization\.k8s\.io/v1\nkind: (?:Cluster)?Role\n(?:[a-z -].*\n)+`).FindString(string(text))
	if role == "" {
		t.Fatalf("%s has no role", page)
	}
	asJSON, err := yaml.YAMLToJSON([]byte(role))
	if err != nil {
		t.Fatal(err)
	}
	return string(asJSON)
}

// kubeCluster is a Kubernetes API server that a test writes to.
type kubeCluster struct {
	t   *testing.T
	api kubeAPI
}

func (k *kubeCluster) must(method, path, body string) {
	k.t.Helper()
	if code, _, text, err := k.api.do(k.t.Context(), method, path, body, nil); err != nil || code >= 300 {
		k.t.Fatalf("%s %s: %d %s %v", method, path, code, text, err)
	}
}

const rbacPath = "/apis/rbac.authorization.k8s.io/v1/"

// bind gives a user a ClusterRole.
func (k *kubeCluster) bind(role, user string) {
	k.t.Helper()
	k.must("POST", rbacPath+"clusterrolebindings", fmt.Sprintf(`{"metadata":{"name":"%s-%s"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%[1]q},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%[2]q}]}`, role, user))
}

// bindIn gives a user a ClusterRole in one namespace.
func (k *kubeCluster) bindIn(namespace, role, user string) {
	k.t.Helper()
	k.must("POST", rbacPath+"namespaces/"+namespace+"/rolebindings", fmt.Sprintf(`{"metadata":{"name":"%s-%s"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%[1]q},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%[2]q}]}`, role, user))
}

func (k *kubeCluster) get(path string) *unstructured.Unstructured {
	k.t.Helper()
	out := &unstructured.Unstructured{}
	code, _, text, err := k.api.do(k.t.Context(), "GET", path, "", nil)
	if err == nil {
		err = json.Unmarshal([]byte(text), &out.Object)
	}
	if err != nil || code != 200 {
		k.t.Fatalf("%s: %d %s %v", path, code, text, err)
	}
	return out
}

// create creates an object once the cluster takes it.
func (k *kubeCluster) create(path, body string) {
	k.t.Helper()
	eventually(k.t, "an object can be created at "+path, func() error {
		code, _, text, err := k.api.do(k.t.Context(), "POST", path, body, nil)
		if err == nil && code != 201 {
			err = fmt.Errorf("%d %s", code, text)
		}
		return err
	})
}

// deleteDefinition deletes the definition of a kind. restore creates it again.
func (k *kubeCluster) deleteDefinition(name string) (restore func()) {
	k.t.Helper()
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	was := k.get(path + "/" + name)
	k.must("DELETE", path+"/"+name, "")
	return func() {
		k.t.Helper()
		again, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": name, "annotations": was.GetAnnotations()}, "spec": was.Object["spec"]})
		if err != nil {
			k.t.Fatal(err)
		}
		k.create(path, string(again))
	}
}

func (k *kubeCluster) entry(name string) {
	k.t.Helper()
	k.must("POST", "/apis/networking.istio.io/v1/namespaces/shop/serviceentries", fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry",
		"metadata":{"name":%q},"spec":{"hosts":["%[1]s.example"],"ports":[{"number":80,"name":"http","protocol":"HTTP"}],"resolution":"STATIC","endpoints":[{"address":"127.0.0.1"}]}}`, name))
}

// statusObjects are objects whose statuses need the rights of a role to each of its groups.
var statusObjects = map[string]struct{ path, resource, object string }{
	"networking.istio.io": {"/apis/networking.istio.io/v1/namespaces/shop/serviceentries/mute", "serviceentries", `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"mute"},"spec":{"hosts":["mute.example"],"ports":[{"number":80,"name":"http","protocol":"HTTP"}],"resolution":"NONE"}}`},
	"security.istio.io":   {"/apis/security.istio.io/v1/namespaces/shop/peerauthentications/mute", "peerauthentications", `{"apiVersion":"security.istio.io/v1","kind":"PeerAuthentication","metadata":{"name":"mute"},"spec":{}}`},
	"telemetry.istio.io":  {"/apis/telemetry.istio.io/v1/namespaces/shop/telemetries/mute", "telemetries", `{"apiVersion":"telemetry.istio.io/v1","kind":"Telemetry","metadata":{"name":"mute"},"spec":{}}`},
	"extensions.istio.io": {"/apis/extensions.istio.io/v1alpha1/namespaces/shop/wasmplugins/mute", "wasmplugins", `{"apiVersion":"extensions.istio.io/v1alpha1","kind":"WasmPlugin","metadata":{"name":"mute"},"spec":{"url":"https://mute.example/filter.wasm","sha256":"` + noModule + `"}}`},
	"networking.k8s.io":   {"/apis/networking.k8s.io/v1/namespaces/shop/ingresses/mute", "ingresses", `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"mute"},"spec":{"ingressClassName":"istio","defaultBackend":{"service":{"name":"web","port":{"number":80}}}}}`},
}

// noModule is the digest of no module.
const noModule = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// expectStatusRights takes the rights away that only statuses need, the rights to each verb of all groups
// at once: each is named. With them back the statuses are written.
func (k *kubeCluster) expectStatusRights(s *server, source string) {
	k.t.Helper()
	whole := &rbacv1.ClusterRole{}
	if err := json.Unmarshal([]byte(clusterRole(k.t, objectsPage)), whole); err != nil {
		k.t.Fatal(err)
	}
	grant := func(role *rbacv1.ClusterRole) {
		k.t.Helper()
		text, err := json.Marshal(role)
		if err != nil {
			k.t.Fatal(err)
		}
		k.must("PUT", rbacPath+"clusterroles/portolan", string(text))
	}
	const classes = "/apis/networking.k8s.io/v1/ingressclasses"
	k.must("POST", classes, `{"metadata":{"name":"istio"},"spec":{"controller":"istio.io/ingress-controller"}}`)
	gateway := xdstest.Dial(k.t, s.xds, xdstest.ClientOptions{Node: xdstest.NewNode("router", "10.8.0.1", "edge", "istio-system", map[string]string{"istio": "ingressgateway"}), Variant: protocol.Delta, Follow: true})
	gateway.Subscribe(xdstest.ClusterType)
	gateway.Subscribe(xdstest.ListenerType)
	for verb, suffix := range map[string]string{"get": "", "patch": "/status"} {
		without := whole.DeepCopy()
		without.Rules = slices.DeleteFunc(without.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Verbs, verb) })
		grant(without)
		var missing []string
		for _, rule := range whole.Rules {
			for _, group := range rule.APIGroups {
				if !slices.Contains(rule.Verbs, verb) {
					continue
				}
				of, known := statusObjects[group]
				if !known || len(rule.Verbs) != 1 || len(rule.Resources) != 1 || rule.Resources[0] != "*"+suffix && rule.Resources[0] != of.resource+suffix {
					k.t.Fatalf("no object needs the right to %s the status of %s of %s", verb, rule.Resources, group)
				}
				k.must("POST", path.Dir(of.path), of.object)
				missing = append(missing, fmt.Sprintf("the account follower may not %s %s.%s%s in all namespaces: grant it the verb %[1]s (see docs/tasks/read-objects-of-a-cluster.md)", verb, of.resource, group, suffix))
			}
		}
		eventually(k.t, "each missing right to "+verb+" is named", func() error {
			out := s.must("", "source", "describe", source)
			for _, words := range missing {
				if !strings.Contains(out, words) {
					return fmt.Errorf("no %q in %s", words, out)
				}
			}
			return nil
		})
		grant(whole)
		for group, of := range statusObjects {
			eventually(k.t, "the status of "+of.path+" is written", func() error {
				object := k.get(of.path)
				if addresses, _, _ := unstructured.NestedSlice(object.Object, "status", "loadBalancer", "ingress"); len(conditionsOf(object)) == 0 && len(addresses) == 0 {
					return fmt.Errorf("%s: it has %v", group, object.Object["status"])
				}
				return nil
			})
			k.must("DELETE", of.path, "")
		}
	}
	k.must("DELETE", classes+"/istio", "")
	gateway.Close()
	s.awaitSource(source, "", 3)
}

// condition waits until an object in the cluster has a condition.
func (k *kubeCluster) condition(plural, name, typ, status, words string) {
	k.t.Helper()
	eventually(k.t, fmt.Sprintf("%s of %s is %s in the cluster", typ, name, status), func() error {
		got := conditionsOf(k.get("/apis/networking.istio.io/v1/namespaces/shop/" + plural + "/" + name))
		if c := got[typ]; c.status != status || !strings.Contains(c.message, words) {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}

// expectSame waits until a server has the entries of the cluster.
func (k *kubeCluster) expectSame(s *server) {
	k.t.Helper()
	eventually(k.t, "the objects are those of the cluster", func() error {
		_, err := k.same(s, "/apis/networking.istio.io/v1/serviceentries")
		return err
	})
}

// same says how the objects at a path of a server differ from those of the cluster, and how many
// these are.
func (k *kubeCluster) same(s *server, path string) (int, error) {
	want, err := digests(path, func(path string) ([]byte, error) {
		code, _, text, err := k.api.do(k.t.Context(), "GET", path, "", nil)
		if err == nil && code != 200 {
			err = fmt.Errorf("%d %.300s", code, text)
		}
		return []byte(text), err
	})
	if err != nil {
		return 0, err
	}
	got, err := digests(path, func(path string) ([]byte, error) { return s.get(path, nil) })
	if err != nil {
		return 0, err
	}
	for name, is := range want {
		if got[name] != is {
			return 0, fmt.Errorf("%s is not as in the cluster", name)
		}
	}
	if len(got) > len(want) {
		return 0, fmt.Errorf("%d objects, not %d", len(got), len(want))
	}
	return len(want), nil
}

// digests returns a digest of the spec of each object, with its UID. It reads in pages.
func digests(path string, get func(string) ([]byte, error)) (map[string][sha256.Size]byte, error) {
	out := map[string][sha256.Size]byte{}
	for next := ""; ; {
		text, err := get(path + "?limit=100&continue=" + url.QueryEscape(next))
		if err != nil {
			return nil, err
		}
		var list unstructured.UnstructuredList
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, err
		}
		for i := range list.Items {
			object := &list.Items[i]
			spec, err := json.Marshal(object.Object["spec"])
			if err != nil {
				return nil, err
			}
			out[object.GetNamespace()+"/"+object.GetName()] = sha256.Sum256(append(spec, object.GetUID()...))
		}
		if next = list.GetContinue(); next == "" {
			return out, nil
		}
	}
}
