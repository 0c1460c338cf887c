package integration

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/storage/longtest"
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
	k.must("POST", rbacPath+"clusterroles", clusterRole(t, "read-objects-of-a-cluster.md"))
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

// clusterRole returns the role that a page shows, in JSON.
func clusterRole(t testing.TB, page string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/tasks/" + page)
	if err != nil {
		t.Fatal(err)
	}
	role := regexp.MustCompile(`(?m)^apiVersion: rbac\.authorization\.k8s\.io/v1\nkind: ClusterRole\n(?:[a-z -].*\n)+`).FindString(string(text))
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

// expectStatusRights takes the rights away that only statuses need, one after the other: each is
// named, and with it back the status is written.
func (k *kubeCluster) expectStatusRights(s *server, source string) {
	k.t.Helper()
	whole := &rbacv1.ClusterRole{}
	if err := json.Unmarshal([]byte(clusterRole(k.t, "read-objects-of-a-cluster.md")), whole); err != nil {
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
	for verb, words := range map[string]string{
		"get": "the account follower may not get serviceentries.networking.istio.io in all namespaces: ", "patch": "the account follower may not patch serviceentries.networking.istio.io/status in all namespaces: ",
	} {
		words += "grant it the verb " + verb + " (see docs/tasks/read-objects-of-a-cluster.md)"
		without := whole.DeepCopy()
		without.Rules = slices.DeleteFunc(without.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Verbs, verb) })
		grant(without)
		k.entry("mute")
		eventually(k.t, "it is said that the right to "+verb+" is missing", func() error {
			if out := s.must("", "source", "describe", source); !strings.Contains(out, words) {
				return errors.New(out)
			}
			return nil
		})
		grant(whole)
		k.condition("serviceentries", "mute", "Accepted", "True", "was seen by the servers")
		k.must("DELETE", "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/mute", "")
	}
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
