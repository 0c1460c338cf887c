package integration

import (
	"encoding/json"
	"errors"
	"fmt"
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
	k.bind("portolan", "follower")
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
	k.expectStatusRights(s, name)
	version := k.get(networking + "serviceentries/one").GetResourceVersion()

	k.api.process.Kill()
	s.awaitSource(name, "connection refused", 3)
	k.api.start(t)
	k.entry("three")
	k.must("DELETE", networking+"serviceentries/two", "")
	s.awaitSource(name, "", 3)
	k.expectSame(s)

	k.must("DELETE", rbacPath+"clusterrolebindings/portolan-follower", "")
	k.api.process.Kill() // which ends all watches
	k.api.start(t)
	s.awaitSource(name, "the account may not", 3)
	k.bind("portolan", "follower")
	s.awaitSource(name, "", 3)

	const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	crd := k.get(definition + "/destinationrules.networking.istio.io")
	k.must("DELETE", definition+"/destinationrules.networking.istio.io", "")
	s.awaitSource(name, "", 2)
	again, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": crd.GetName(), "annotations": crd.GetAnnotations()}, "spec": crd.Object["spec"]})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the definition can be made again", func() error {
		code, _, body, err := k.api.do(t.Context(), "POST", definition, string(again), nil)
		if err == nil && code != 201 {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	eventually(t, "an object of it can be written", func() error {
		code, _, body, err := k.api.do(t.Context(), "POST", networking+"destinationrules", rule, nil)
		if err == nil && code != 201 {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
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
		"get": "the account may not get serviceentries.networking.istio.io: ", "patch": "the account may not patch serviceentries.networking.istio.io/status: ",
	} {
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
	names := func(text []byte) (out []string) {
		var list unstructured.UnstructuredList
		if err := json.Unmarshal(text, &list); err != nil {
			k.t.Fatal(err)
		}
		for i := range list.Items {
			spec, err := json.Marshal(list.Items[i].Object["spec"])
			if err != nil {
				k.t.Fatal(err)
			}
			out = append(out, list.Items[i].GetName()+" "+string(list.Items[i].GetUID())+" "+string(spec))
		}
		slices.Sort(out)
		return out
	}
	const path = "/apis/networking.istio.io/v1/serviceentries"
	eventually(k.t, "the objects are those of the cluster", func() error {
		_, _, there, err := k.api.do(k.t.Context(), "GET", path, "", nil)
		if err != nil {
			return err
		}
		here, err := s.get(path, nil)
		if err != nil {
			return err
		}
		if got, want := names(here), names([]byte(there)); !slices.Equal(got, want) {
			return fmt.Errorf("%v, not %v", got, want)
		}
		return nil
	})
}
