package rest_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
)

// insecure is an object with security settings that are not served, and the path of its
// kind.
type insecure struct{ path, apiVersion, kind, spec, field string }

// document returns the object with more metadata, which begins with a comma.
func (i insecure) document(metadata string) string {
	return `{"apiVersion":"` + i.apiVersion + `","kind":"` + i.kind + `","metadata":{"name":"default","namespace":"shop"` + metadata + `},"spec":` + i.spec + `}`
}

var insecureObjects = map[string]insecure{
	"MeshConfig": {"portolan.io/v1/namespaces/shop/meshconfigs", "portolan.io/v1", "MeshConfig", `{"trustDomainAliases":["a.b"],"serviceEntryVisibility":{"applyToSidecars":true}}`, "spec.serviceEntryVisibility.applyToSidecars"},
}

// TestUnservedSecurityIsRefused: only a restore stores it, whatever the request, unless
// the server has AcceptUnserved. Stored objects stay.
func TestUnservedSecurityIsRefused(t *testing.T) {
	t.Parallel()
	for name, object := range insecureObjects {
		for _, accepted := range []bool{false, true} {
			if accepted {
				name += ", accepted"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := resttest.Start(t, 0, func(o *rest.Options) { o.AcceptUnserved = accepted })
				all, one := "/apis/"+object.path, "/apis/"+object.path+"/default"
				plain := object.document("")
				try := func(what string, mayDo bool, method, path, body string) {
					t.Helper()
					before := s.Store.Version()
					a := s.Do(t, method, path, body)
					if mayDo || accepted {
						if a.Code >= 300 {
							t.Errorf("%s: %d %s", what, a.Code, a.Body)
						}
						return
					}
					if a.Code != 422 || s.Store.Version() != before {
						t.Errorf("%s: %d %s", what, a.Code, a.Body)
					}
					for _, want := range []string{strings.ToLower(object.kind) + "/shop/default", object.field, "has no effect here", "--accept-unserved", `"causes"`} {
						if !strings.Contains(a.Body, want) {
							t.Errorf("%s: no %s in %s", what, want, a.Body)
						}
					}
				}
				try("dry create", false, "POST", all+dry, plain)
				try("dry batch", false, "POST", batches+dry, batchOf(write("apply", plain)))
				try("create", false, "POST", all, plain)
				s.Do(t, "DELETE", one, "")
				try("create of a batch", false, "POST", batches, batchOf(write("create", plain)))
				s.Do(t, "DELETE", one, "")
				try("apply", false, "POST", batches, batchOf(write("apply", entry("other", "")), write("apply", plain)))

				try("restore", true, "POST", batches, batchOf(write("restore", plain)))
				try("unchanged apply", true, "POST", batches, batchOf(write("apply", plain)))
				try("unchanged replace", true, "PUT", one, plain)
				labelled := object.document(`,"labels":{"a":"b"},"annotations":{"c":"d"}`)
				try("dry relabel", true, "PUT", one+dry, labelled)
				try("relabel", true, "PUT", one, labelled)
				try("relabel of a batch", true, "POST", batches, batchOf(write("update", object.document(`,"labels":{"a":"c"}`))))
				changed := object
				changed.spec = differing[object.kind+object.field]
				if changed.spec == "" {
					t.Fatalf("no other spec of %s", name)
				}
				try("dry change", false, "PUT", one+dry, changed.document(""))
				try("dry change of a batch", false, "POST", batches+dry, batchOf(write("update", changed.document(""))))
				try("change", false, "PUT", one, changed.document(""))
				try("restore of another", true, "POST", batches, batchOf(write("restore", changed.document(""))))
				try("change by apply", false, "POST", batches, batchOf(write("apply", plain)))
				try("delete", true, "DELETE", one, "")
				try("apply after the delete", false, "POST", batches, batchOf(write("apply", plain)))
			})
		}
	}
}

// differing are other specs with the same fault, by kind and field.
var differing = func() map[string]string {
	out := map[string]string{}
	for _, o := range insecureObjects {
		spec := strings.NewReplacer("a.b", "a.c").Replace(o.spec)
		if spec != o.spec {
			out[o.kind+o.field] = spec
		}
	}
	return out
}()

// A conflict is reported before unserved security, as clients of Kubernetes expect.
func TestUnservedSecurityIsNoConflict(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	object := insecureObjects["MeshConfig"]
	if a := s.Do(t, "PUT", "/apis/"+object.path+"/default", object.document("")); a.Code != 404 {
		t.Errorf("replace of none: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "POST", batches, batchOf(write("restore", object.document("")))); a.Code != 200 {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "POST", "/apis/"+object.path, object.document("")); a.Code != 409 {
		t.Errorf("create of one that exists: %d %s", a.Code, a.Body)
	}
}
