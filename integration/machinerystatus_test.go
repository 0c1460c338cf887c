package integration

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/portolan-mesh/portolan/storage/status"
)

// seeConditions is the code and the conditions that clients have set.
func seeConditions(m *machinery, code int, header http.Header, body string) string {
	out := seeCode(m, code, header, body)
	state, _ := asObject(body)["status"].(map[string]any)
	conditions, _ := state["conditions"].([]any)
	for _, c := range conditions {
		one, _ := c.(map[string]any)
		if kind := fmt.Sprint(one["type"]); !status.Reserved(kind) {
			out += fmt.Sprintf(" %s=%v", kind, one["status"])
		}
	}
	return out
}

// conditions is the status of a ServiceEntry, of conditions TYPE=STATUS.
func conditions(all ...string) string {
	var list []string
	for _, c := range all {
		kind, value, _ := strings.Cut(c, "=")
		list = append(list, fmt.Sprintf(`{"type":%q,"status":%q}`, kind, value))
	}
	return `"status":{"conditions":[` + strings.Join(list, ",") + `]}`
}

// applied is a ServiceEntry with a status alone.
func applied(all ...string) string {
	return `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"d"},` + conditions(all...) + `}`
}

const (
	byType   = "conditions are kept by type, so that controllers do not take those of each other away (docs/operations/kubernetes-clients.md)"
	sameSpec = "the text of a spec that says the same is no new generation: proxies get nothing new (docs/decisions/specs-are-read-back-as-written.md)"
)

// statusScenario goes on with statuses, and with specs that say their defaults.
var statusScenario = []machineryStep{
	{name: "one with defaults", method: "POST", body: serviceEntry("d", "MESH_INTERNAL", "MESH_EXTERNAL", `"10.0.0.1"`, `"10.0.0.1","weight":0`), look: seeAt("spec.location", "spec.endpoints", "metadata.generation")},
	{name: "a default away", method: "PATCH", path: "/d", media: jsonPatch, body: `[{"op":"remove","path":"/spec/location"}]`, look: seeAt("spec.location", "metadata.generation"),
		differs: sameSpec, ours: "200 spec.location=null metadata.generation=1"},
	{name: "a default there again", method: "PATCH", path: "/d", media: mergePatch, body: `{"spec":{"location":"MESH_EXTERNAL","exportTo":[]}}`, look: seeAt("spec.location", "spec.exportTo")},

	{name: "status as a dry run", method: "PATCH", path: "/d/status?dryRun=All", media: mergePatch, body: `{` + conditions("Ready=True") + `}`, look: seeConditions},
	{name: "it has no status", method: "GET", path: "/d", look: seeConditions},
	{name: "status", method: "PATCH", path: "/d/status", media: mergePatch, body: `{` + conditions("Ready=True") + `}`, look: seeConditions},
	{name: "status of before", method: "GET", path: "/d", look: remember("d")},
	{name: "put of a status", method: "PUT", path: "/d/status", body: serviceEntry("d", `"labels"`, `"resourceVersion":"$d","labels"`, `"spec"`, conditions("Ready=False", "Synced=True")+`,"spec"`), look: seeConditions},
	{name: "put of a status of a stale version", method: "PUT", path: "/d/status", body: serviceEntry("d", `"labels"`, `"resourceVersion":"$d","labels"`, `"spec"`, conditions("Ready=True")+`,"spec"`)},
	{name: "put of a status does not touch the spec", method: "PATCH", path: "/d/status", media: mergePatch, body: `{"spec":{"resolution":"DNS"},"metadata":{"labels":{"app":"other"}}}`, look: seeAt("spec.resolution", "metadata.generation", "metadata.labels"),
		differs: "of metadata, the status of an object has none of its own", ours: `200 spec.resolution="STATIC" metadata.generation=1 metadata.labels={"app":"d"}`},
	{name: "a patch of the object does not touch the status", method: "PATCH", path: "/d", media: mergePatch, body: `{"metadata":{"labels":{"x":"y"}},` + conditions("Ready=True") + `}`, look: seeConditions},
	{name: "apply of a status", method: "PATCH", path: "/d/status?fieldManager=one", media: applyPatch, body: applied("Checked=True"), look: seeConditions,
		differs: byType, ours: "200 Ready=False Synced=True Checked=True"},
	{name: "apply of a status against another", method: "PATCH", path: "/d/status?fieldManager=two", media: applyPatch, body: applied("Checked=False"), look: seeConditions,
		differs: byType, ours: `409 Conflict FieldManagerConflict .status.conditions[type="Checked"]`},
	{name: "apply of a status by force", method: "PATCH", path: "/d/status?fieldManager=two&force=true", media: applyPatch, body: applied("Checked=False"), look: seeConditions,
		differs: byType, ours: "200 Ready=False Synced=True Checked=False"},
	{name: "a status patch that tests", method: "PATCH", path: "/d/status", media: jsonPatch, body: `[{"op":"test","path":"/metadata/name","value":"x"}]`},
	{name: "a status patch with JSON", method: "PATCH", path: "/d/status", media: jsonPatch, body: `[{"op":"replace","path":"/status","value":{"conditions":[{"type":"Last","status":"True"}]}}]`, look: seeConditions},
	{name: "get of a status", method: "GET", path: "/d/status", look: seeConditions},
	{name: "delete of a status", method: "DELETE", path: "/d/status"},
	{name: "status of nothing", method: "PATCH", path: "/none/status", media: mergePatch, body: `{` + conditions("Ready=True") + `}`},
	{name: "delete of what has a status", method: "DELETE", path: "/d"},
	{name: "made anew", method: "POST", body: serviceEntry("d"), look: seeConditions},
	{name: "without a status", method: "GET", path: "/d", look: seeConditions},
	{name: "and away", method: "DELETE", path: "/d"},
}
