package rest_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, etcdtest.LeftByMembers()...) }

const (
	entries     = "/apis/networking.istio.io/v1/serviceentries"
	shop        = "/apis/networking.istio.io/v1/namespaces/shop"
	shopEntries = shop + "/serviceentries"
)

// entry returns a ServiceEntry of the namespace shop; meta is added to its metadata.
func entry(name, meta string) string {
	return fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":%q,"namespace":"shop"%s},`+
		`"spec":{"hosts":["%s.shop"],"location":"MESH_INTERNAL","resolution":"STATIC","ports":[{"number":80,"name":"http","protocol":"HTTP"}],`+
		`"endpoints":[{"address":"10.0.0.1"}]}}`, name, meta, name)
}

// object is the part of an answer that tests check.
type object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
}

func parse[T any](t *testing.T, text string) T {
	t.Helper()
	var out T
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

// create makes a ServiceEntry and returns its metadata.
func create(t *testing.T, s *resttest.Server, name, meta string) metav1.ObjectMeta {
	t.Helper()
	a := s.Do(t, "POST", shopEntries, entry(name, meta))
	if a.Code != 201 {
		t.Fatalf("create %s: %d %s", name, a.Code, a.Body)
	}
	return parse[object](t, a.Body).Metadata
}
