package credentials_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAttacksByPatch: no form of a patch gives rights, and none tells the data of a secret.
func TestAttacksByPatch(t *testing.T) {
	t.Parallel()
	a := startAttacked(t)
	const label = `{"metadata":{"labels":{"a":"b"}}}`
	door, mine := shopSecrets+"/door?dryRun=All", ours+"shop/rolebindings/editor-editor"
	owned := func(manager, more string) string {
		return `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"a","managedFields":[{"manager":"` + manager + `","operation":"Apply","apiVersion":"networking.istio.io/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]` + more + `}}`
	}
	boss := document(t, binding("shop", "editor-editor", "admin", named("editor")))
	for _, x := range []attack{
		// Without the right.
		{user: "", method: "PATCH", path: shopEntries + "/a", media: asMerge, body: label, code: 401},
		{user: "guess", method: "PATCH", path: shopEntries + "/a", media: asMerge, body: label, code: 401},
		{user: "nobody", method: "PATCH", path: shopEntries + "/a", media: asOps, body: `[]`, code: 403},
		{user: "viewer", method: "PATCH", path: shopEntries + "/a", media: asOps, body: `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, code: 403},
		{user: "viewer", method: "PATCH", path: shopEntries + "/a?dryRun=All", media: asMerge, body: `{}`, code: 403},
		{user: "viewer", method: "PATCH", path: spaces + "/shop/configmaps/notes", media: asStrategic, body: label, code: 403},
		{user: "viewer", method: "PATCH", path: shopEntries + "/a?fieldManager=kubectl&force=true&dryRun=All", media: asApply, body: owned("kubectl", ""), code: 403},
		{user: "editor", method: "PATCH", path: blogEntries + "/hidden", media: asMerge, body: label, code: 403, hides: "resourceVersion"},
		{user: "editor", method: "PATCH", path: blogEntries + "/none", media: asMerge, body: label, code: 403},
		{user: "starter", method: "PATCH", path: shopEntries + "/a?fieldManager=x&force=true", media: asApply, body: document(t, entry("shop", "a")), code: 403},
		{user: "updater", method: "PATCH", path: shopEntries + "/new?fieldManager=x&force=true", media: asApply, body: document(t, entry("shop", "new")), code: 403},
		{user: "one", method: "PATCH", path: shopEntries + "/b", media: asMerge, body: label, code: 403},
		{user: "one", method: "PATCH", path: shopEntries + "/b?fieldManager=x&force=true", media: asApply, body: document(t, entry("shop", "b")), code: 403},
		// A patch stays at its object.
		{user: "one", method: "PATCH", path: shopEntries + "/a?dryRun=All", media: asMerge, body: `{"metadata":{"name":"b"}}`, code: 400, says: "make them equal"},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?dryRun=All", media: asMerge, body: `{"metadata":{"namespace":"blog"}}`, code: 400, says: "make them equal"},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?dryRun=All", media: asOps, body: `[{"op":"replace","path":"/kind","value":"Role"},{"op":"replace","path":"/apiVersion","value":"portolan.io/v1"},{"op":"replace","path":"/spec","value":{"rules":[]}}]`, code: 400, says: "the path takes ServiceEntry"},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?fieldManager=x&force=true", media: asApply, body: boss, code: 400},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?fieldManager=x&force=true&dryRun=All", media: asApply, body: document(t, entry("blog", "a")), code: 400},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?fieldManager=x&force=true&dryRun=All", media: asApply, body: document(t, entry("shop", "b")), code: 400},
		// Nobody's rights grow.
		{user: "editor", method: "PATCH", path: mine, media: asMerge, body: `{"spec":{"role":"admin"}}`, code: 403},
		{user: "editor", method: "PATCH", path: mine + "?fieldManager=portolan&force=true", media: asApply, body: boss, code: 403},
		{user: "updater", method: "PATCH", path: rootBinds + "/updater-updater", media: asOps, body: `[{"op":"replace","path":"/spec/role","value":"admin"}]`, code: 403, says: "may not give away"},
		{user: "updater", method: "PATCH", path: rootBinds + "/updater-updater?dryRun=All", media: asMerge, body: `{"spec":{"role":"admin"}}`, code: 403, says: "may not give away"},
		{user: "updater", method: "PATCH", path: rootBinds + "/updater-updater?fieldManager=alice&force=true", media: asApply, body: document(t, binding(root, "updater-updater", "admin", named("updater"))), code: 403, says: "may not give away"},
		{user: "updater", method: "PATCH", path: rootUsers + "/updater", media: asMerge, body: `{"spec":{"tokens":[{"id":"x","hash":"AAAA"}]}}`, code: 422},
		{user: "lead", method: "PATCH", path: ours + "shop/rolebindings/lead-admin", media: asOps, body: `[{"op":"replace","path":"/metadata/namespace","value":"` + root + `"}]`, code: 400},
		// Metadata that the server alone sets.
		{user: "editor", method: "PATCH", path: shopEntries + "/a", media: asMerge, body: `{"metadata":{"uid":"other"}}`, code: 409},
		{user: "editor", method: "PATCH", path: shopEntries + "/a", media: asMerge, body: `{"metadata":{"resourceVersion":"1"}}`, code: 409},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?fieldManager=x&force=true", media: asApply, body: owned("", `,"uid":"other"`), code: 400},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?fieldManager=x&force=true", media: asApply, body: strings.Replace(document(t, entry("shop", "a")), `"metadata":{`, `"metadata":{"resourceVersion":"1",`, 1), code: 409},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?fieldManager=x&force=true", media: asApply, body: owned("kubectl", ""), code: 400, says: "managedFields"},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?dryRun=All", media: asMerge, body: `{"metadata":{"creationTimestamp":"2001-01-01T00:00:00Z","generation":99},"status":{"conditions":[{"type":"Accepted","status":"True"}]}}`, code: 200, hides: "2001"},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?fieldManager=" + strings.Repeat("x", 129), media: asMerge, body: label, code: 422, says: "fieldManager"},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?fieldManager=%0a", media: asMerge, body: label, code: 422, says: "fieldManager"},
		{user: "editor", method: "PATCH", path: shopEntries + "/a", media: asApply, body: document(t, entry("shop", "a")), code: 422, says: "fieldManager"},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?force=true", media: asMerge, body: label, code: 422, says: "force"},
		{user: "editor", method: "PATCH", path: shopEntries + "/a?dryRun=Some", media: asMerge, body: label, code: 422, says: "dryRun"},
		// The data of secrets.
		{user: "editor", method: "PATCH", path: door, media: asOps, body: `[{"op":"test","path":"/data/key","value":"` + sealedWord + `"}]`, code: 403, hides: "data:"},
		{user: "editor", method: "PATCH", path: door, media: asOps, body: `[{"op":"test","path":"x/data/key","value":"` + strings.Repeat("A", 12) + `"}]`, code: 400, says: "begins with"},
		{user: "editor", method: "PATCH", path: door, media: asOps, body: `[{"op":"copy","from":"x/data/key","path":"/metadata/labels"}]`, code: 400, says: "begins with"},
		{user: "editor", method: "PATCH", path: door, media: asOps, body: `[{"op":"add","path":"/metadata/labels","value":{}},{"op":"copy","from":"x/data/key","path":"/metadata/labels/key"}]`, code: 400, says: "begins with"},
		{user: "editor", method: "PATCH", path: door, media: asOps, body: `[{"op":"move","from":"metadata/data/key","path":"/metadata/generateName"}]`, code: 400, says: "begins with"},
		{user: "editor", method: "PATCH", path: door, media: asOps, body: `[{"op":"copy","from":"/data","path":"/metadata/annotations"}]`, code: 403},
		{user: "editor", method: "PATCH", path: door, media: asOps, body: `[{"op":"copy","from":"","path":"/metadata/annotations"}]`, code: 422},
		{user: "editor", method: "PATCH", path: door, media: asOps, body: `[{"op":"test","path":"","value":{}}]`, code: 403},
		{user: "editor", method: "PATCH", path: door, media: asStrategic, body: `{"data":{"other":"Yg=="},"$setElementOrder/data":["key"]}`, code: 400},
		{user: "editor", method: "PATCH", path: door, media: asStrategic, body: `{"$patch":"replace","data":{"$patch":"replace","other":"Yg=="}}`, code: 400},
		{user: "editor", method: "PATCH", path: door, media: asMerge, body: `{"metadata":{"labels":{"a":"b"}}}`, code: 200},
		{user: "editor", method: "PATCH", path: door, media: asMerge, body: `{"data":{"key":null},"stringData":{"other":"b"}}`, code: 200},
		{user: "editor", method: "PATCH", path: door + "&fieldManager=x&force=true", media: asApply, body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"door"},"data":{"other":"Yg=="}}`, code: 200},
		{user: "editor", method: "PATCH", path: shopSecrets + "/door?dryRun=All&pretty=true", media: asMerge, body: `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"` + word + `"}}}`, code: 200},
		// The hashes of tokens.
		{user: "updater", method: "PATCH", path: rootUsers + "/alice?dryRun=All", media: asOps, body: `[{"op":"test","path":"/spec/tokens/0/hash","value":"AAAA"}]`, code: 422, says: "does not fit"},
		{user: "updater", method: "PATCH", path: rootUsers + "/updater?dryRun=All", media: asMerge, body: label, code: 200, hides: `"hash"`},
	} {
		a.try(t, x)
	}
}

// TestAttacksOnManagedFields: whoever may write an object may say who manages its fields, and that
// is all: no name of a manager gives a right, and none is longer than Kubernetes takes.
func TestAttacksOnManagedFields(t *testing.T) {
	t.Parallel()
	a := startAttacked(t)
	applied := document(t, entry("shop", "a"))
	managers := func() (out []string) {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(a.Local().Do(t, "GET", shopEntries+"/a?consistent=true", "").Body), &object); err != nil {
			t.Fatal(err)
		}
		for _, m := range object.ManagedFields {
			out = append(out, m.Manager)
		}
		return out
	}
	a.try(t, attack{user: "editor", method: "PATCH", path: shopEntries + "/a?fieldManager=owner", media: asApply, body: applied, code: 200})
	changed := strings.Replace(applied, `"number":80`, `"number":81`, 1)
	if changed == applied {
		t.Fatal("nothing is changed")
	}
	labelled := strings.Replace(applied, `"metadata":{`, `"metadata":{"labels":{"a":"b"},`, 1)
	forged := strings.Replace(labelled, `"metadata":{`, `"metadata":{"managedFields":[{"manager":"`+strings.Repeat("m", 4000)+`","operation":"Apply","apiVersion":"networking.istio.io/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}],`, 1)
	long := "fieldManager=" + strings.Repeat("x", 129)
	for _, x := range []attack{
		{user: "lead", method: "PATCH", path: shopEntries + "/a?fieldManager=other", media: asApply, body: changed, code: 409, says: "owner"},
		{user: "viewer", method: "PATCH", path: shopEntries + "/a?fieldManager=owner", media: asApply, body: applied, code: 403},
		{user: "viewer", method: "PUT", path: shopEntries + "/a?fieldManager=owner", media: asJSON, body: applied, code: 403},
		{user: "lead", method: "PUT", path: shopEntries + "/a?" + long, media: asJSON, body: labelled, code: 422, says: "fieldManager"},
		{user: "lead", method: "PUT", path: shopEntries + "/a?fieldManager=%00", media: asJSON, body: labelled, code: 422, says: "fieldManager"},
		{user: "lead", method: "POST", path: shopEntries + "?" + long, media: asJSON, body: document(t, entry("shop", "c")), code: 422, says: "fieldManager"},
		{user: "lead", method: "POST", path: batches + "?" + long, media: asJSON, body: batchOf(t, "apply", entry("shop", "c")), code: 422, says: "fieldManager"},
		{user: "lead", method: "PUT", path: shopEntries + "/a", media: asJSON, body: forged, code: 422, says: "managedFields"},
		// A batch over an object that is applied server-side.
		{user: "viewer", method: "POST", path: batches + "?fieldManager=owner", media: asJSON, body: batchOf(t, "apply", entry("shop", "a")), code: 403},
		{user: "starter", method: "POST", path: batches + "?fieldManager=owner", media: asJSON, body: batchOf(t, "apply", entry("shop", "a")), code: 403},
		{user: "viewer", method: "POST", path: batches + "?fieldManager=owner&dryRun=All", media: asJSON, body: batchOf(t, "restore", entry("shop", "a")), code: 403},
		{user: "lead", method: "POST", path: batches + "?fieldManager=owner&dryRun=All", media: asJSON, body: batchOf(t, "apply", entry("shop", "a")), code: 200},
	} {
		a.try(t, x)
	}
	a.try(t, attack{user: "lead", method: "PUT", path: shopEntries + "/a?fieldManager=lead", media: asJSON, body: labelled, code: 200})
	if got := managers(); !slices.Contains(got, "lead") || !slices.Contains(got, "owner") {
		t.Errorf("the managers are %q", got)
	}
}
