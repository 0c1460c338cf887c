package etcd_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema/schematest"
	"github.com/portolan-mesh/portolan/storage/storetest"
)

func withKinds(o *etcd.Options) { o.Schemas = schematest.Kinds() }

func TestKindsThatAreNoMessages(t *testing.T) {
	t.Parallel()
	storetest.RunKinds(t, func(t *testing.T) storage.ConfigStore { return open(t, etcdtest.Start(t), withKinds) })
}

// TestTheStoredFormOfAGoStruct: other versions of the program read the key and the spec
// of such an object, so they must not change.
func TestTheStoredFormOfAGoStruct(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client, withKinds)
	create(t, store, schematest.NewNote("shop", "hello", "<Tea>", "a", "b"))
	kv := value(t, client, "/portolan/v1/mesh/config/core/Note/shop/hello")
	wrapper := unwrap(t, kv.Value)
	if wrapper.Group != "" || wrapper.Kind != "Note" || wrapper.Spec.TypeUrl != "application/json" {
		t.Errorf("%v", wrapper)
	}
	if got, want := string(wrapper.Spec.Value), `{"title":"<Tea>","lines":[{"text":"a"},{"text":"b"}]}`; got != want {
		t.Errorf("the spec is %s, want %s", got, want)
	}
	wrapper.Spec.TypeUrl = "type.googleapis.com/google.protobuf.BytesValue"
	kv.Value = wrap(t, wrapper)
	if _, err := etcd.Decode(kv, schematest.Kinds(), ""); !isErr(err, etcd.ErrUndecodable) || !strings.Contains(err.Error(), "must be application/json") {
		t.Errorf("%v", err)
	}
}

// TestTheStoredFormOfASpecAtTheTopLevel: it is that of any Go struct. Where the spec
// stands in a document does not matter to the store. What a newer binary wrote stays.
func TestTheStoredFormOfASpecAtTheTopLevel(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client, withKinds)
	box := schematest.NewBox("shop", "tools", map[string]string{"a": "<1>"})
	create(t, store, box)
	const key = "/portolan/v1/mesh/config/core/Box/shop/tools"
	wrapper := unwrap(t, value(t, client, key).Value)
	if got, want := string(wrapper.Spec.Value), `{"type":"words","words":{"a":"<1>"}}`; got != want || wrapper.Spec.TypeUrl != "application/json" {
		t.Errorf("the spec is %s, want %s", wrapper.Spec, want)
	}
	wrapper.Spec.Value = []byte(`{"type":"words","words":{"a":"<1>"},"lid":"wooden","newer":{"x":1}}`)
	put(t, client, key, wrap(t, wrapper))
	if _, err := store.Update(t.Context(), schematest.NewBox("shop", "tools", map[string]string{"a": "2"})); err != nil {
		t.Fatal(err)
	}
	want := `{"lid":"wooden","newer":{"x":1},"type":"words","words":{"a":"2"}}`
	if got := string(unwrap(t, value(t, client, key).Value).Spec.Value); got != want {
		t.Errorf("the spec is %s, want %s", got, want)
	}
}

// TestFieldsOfANewerBinaryStayInAGoStruct: this binary ignores them when it reads, and
// keeps them when it writes.
func TestFieldsOfANewerBinaryStayInAGoStruct(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store := open(t, client, withKinds)
	note := schematest.NewNote("shop", "hello", "Tea", "a", "b")
	create(t, store, note)
	key := etcd.ConfigKey(note.Key())
	wrapper := unwrap(t, value(t, client, key).Value)
	wrapper.Spec.Value = []byte(`{"title":"Tea","author":{"name":"x"},"lines":[{"text":"a","colour":1},{"text":"b","colour":12345678901234567890}]}`)
	put(t, client, key, wrap(t, wrapper))
	for name, reader := range map[string]*etcd.Store{"the one that wrote it": store, "another": open(t, client, withKinds)} {
		got, err := reader.Get(t.Context(), note.GroupVersionKind, "hello", "shop")
		if err != nil || got.Spec.(*schematest.NoteSpec).Lines[1].Text != "b" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if survey, err := store.Survey(t.Context()); err != nil || survey.Objects != 1 || survey.UnknownFields != 1 {
		t.Errorf("%+v, %v", survey, err)
	}
	revision, err := store.Update(t.Context(), note)
	if err != nil || revision == "" {
		t.Fatal(err)
	}
	if got := string(unwrap(t, value(t, client, key).Value).Spec.Value); !strings.Contains(got, "author") {
		t.Errorf("an update that says the same wrote %s", got)
	}
	if _, err := store.Update(t.Context(), schematest.NewNote("shop", "hello", "Coffee", "a", "c")); err != nil {
		t.Fatal(err)
	}
	want := `{"author":{"name":"x"},"lines":[{"colour":1,"text":"a"},{"text":"c"}],"title":"Coffee"}`
	if got := string(unwrap(t, value(t, client, key).Value).Spec.Value); got != want {
		t.Errorf("the spec is %s, want %s", got, want)
	}
}
