package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/longtest"
)

// The behaviours of the API machinery, as Kubernetes' own server shows them. The scenario runs
// against it and against Portolan, and what is looked at must be equal, but for the steps that
// say why not.
//
// kube-apiserver takes minutes to build, so its answers are kept in testdata/machinery.txt. The
// long form of the test runs it and compares that file, PORTOLAN_GOLDEN=write writes it anew.

const machineryFile = "testdata/machinery.txt"

// machineryStep is one request, and what to look at in its answer.
type machineryStep struct {
	name         string
	method, path string // of the kind, below namespaces/shop; absolute with a leading /apis or /api
	body         string
	media        string // of the body, JSON unless set
	accept       string
	look         func(m *machinery, code int, header http.Header, body string) string
	// differs says why Portolan's answer is another one, and ours what it is.
	differs, ours string
}

// machinery runs steps.
type machinery struct {
	t        *testing.T
	api      kubeAPI
	versions map[string]string // known resource versions and uids, by what they are called
	seen     map[string]string // the content of objects in the events so far
}

const shopEntries = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries"

func (m *machinery) run(s machineryStep) string {
	m.t.Helper()
	path := s.path
	if !strings.HasPrefix(path, "/api") {
		path = shopEntries + path
	}
	byLength := slices.SortedFunc(maps.Keys(m.versions), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for _, name := range byLength { // $continue before $c
		value := m.versions[name]
		s.body, path = strings.ReplaceAll(s.body, "$"+name, value), strings.ReplaceAll(path, "$"+name, url.QueryEscape(value))
	}
	header := map[string]string{}
	if s.media != "" {
		header["Content-Type"] = s.media
	}
	if s.accept != "" {
		header["Accept"] = s.accept
	}
	code, answered, body, err := m.api.do(m.t.Context(), s.method, path, s.body, header)
	if err != nil {
		m.t.Fatalf("%s: %v", s.name, err)
	}
	look := s.look
	if look == nil {
		look = seeCode
	}
	return look(m, code, answered, body)
}

// seeCode is the code, and for a refusal its reason and causes.
func seeCode(_ *machinery, code int, _ http.Header, body string) string {
	if code < 300 {
		return fmt.Sprint(code)
	}
	var status struct {
		Reason  string
		Details struct {
			Kind   string
			Causes []struct{ Reason, Field string }
		}
	}
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		return fmt.Sprintf("%d %s", code, body)
	}
	out := fmt.Sprintf("%d %s", code, status.Reason)
	if status.Reason == "Conflict" {
		for _, cause := range status.Details.Causes {
			out += " " + cause.Reason + " " + cause.Field
		}
	}
	return out
}

// remember is seeCode, and keeps the version and the uid of the object under a name.
func remember(name string) func(*machinery, int, http.Header, string) string {
	return func(m *machinery, code int, header http.Header, body string) string {
		object := asObject(body)
		metadata, _ := object["metadata"].(map[string]any)
		m.versions[name], _ = metadata["resourceVersion"].(string)
		m.versions[name+"-uid"], _ = metadata["uid"].(string)
		return seeCode(m, code, header, body)
	}
}

func asObject(body string) map[string]any {
	var out map[string]any
	_ = json.Unmarshal([]byte(body), &out)
	return out
}

// seeAt is the code and the values at paths such as metadata.labels, in JSON.
func seeAt(paths ...string) func(*machinery, int, http.Header, string) string {
	return func(m *machinery, code int, header http.Header, body string) string {
		out := []string{seeCode(m, code, header, body)}
		object := asObject(body)
		for _, path := range paths {
			var value any = object
			for part := range strings.SplitSeq(path, ".") {
				inside, _ := value.(map[string]any)
				value = inside[part]
			}
			text, _ := json.Marshal(value)
			out = append(out, path+"="+string(text))
		}
		return strings.Join(out, " ")
	}
}

// seeNames is the code, the kind and the names of a list, with whether there is more.
func seeNames(m *machinery, code int, header http.Header, body string) string {
	object := asObject(body)
	items, _ := object["items"].([]any)
	var all []string
	for _, item := range items {
		inside, _ := item.(map[string]any)["metadata"].(map[string]any)
		all = append(all, fmt.Sprint(inside["name"]))
	}
	metadata, _ := object["metadata"].(map[string]any)
	out := fmt.Sprintf("%s %v %v", seeCode(m, code, header, body), object["kind"], all)
	if token, _ := metadata["continue"].(string); token != "" {
		m.versions["continue"] = token
		out += fmt.Sprintf(" more remaining=%v", metadata["remainingItemCount"])
	}
	return out
}

// seeManagers is the code and who has which fields.
func seeManagers(m *machinery, code int, header http.Header, body string) string {
	out := seeCode(m, code, header, body)
	metadata, _ := asObject(body)["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	for _, entry := range entries {
		e, _ := entry.(map[string]any)
		fields, _ := json.Marshal(e["fieldsV1"])
		out += fmt.Sprintf("\n    %v %v %v %s", e["manager"], e["operation"], e["apiVersion"], fields)
	}
	return out
}

// seeEvents is the types and names of the events of a watch, but for changes of a status, and
// which bookmarks end the initial ones.
func seeEvents(m *machinery, code int, _ http.Header, body string) string {
	out := []string{fmt.Sprint(code)}
	for line := range strings.Lines(body) {
		event := asObject(line)
		object, _ := event["object"].(map[string]any)
		metadata, _ := object["metadata"].(map[string]any)
		what := fmt.Sprintf("%v %v", event["type"], metadata["name"])
		if event["type"] == "BOOKMARK" {
			annotations, _ := metadata["annotations"].(map[string]any)
			if annotations["k8s.io/initial-events-end"] != "true" {
				continue // they come when they like
			}
			what = "BOOKMARK initial-events-end"
		}
		content, _ := json.Marshal([]any{metadata["generation"], metadata["labels"]})
		name := fmt.Sprint("seen-", metadata["name"])
		if event["type"] == "MODIFIED" && m.seen[name] == string(content) {
			continue // of its status
		}
		m.seen[name] = string(content)
		if event["type"] == "ERROR" {
			what = fmt.Sprintf("ERROR %v %v", object["code"], object["reason"])
		}
		out = append(out, what)
	}
	return strings.Join(out, ", ")
}

// seeTable is the columns of a table that people see without -o wide, and its rows.
func seeTable(m *machinery, code int, header http.Header, body string) string {
	object := asObject(body)
	var columns, rows []string
	definitions, _ := object["columnDefinitions"].([]any)
	for _, c := range definitions {
		column, _ := c.(map[string]any)
		if column["priority"] == 0.0 {
			columns = append(columns, fmt.Sprint(column["name"]))
		}
	}
	all, _ := object["rows"].([]any)
	for _, r := range all {
		row, _ := r.(map[string]any)
		inside, _ := row["object"].(map[string]any)
		cells, _ := row["cells"].([]any)
		rows = append(rows, fmt.Sprintf("%v, object %v", cells[0], inside["kind"]))
	}
	return fmt.Sprintf("%s %v %v %v", seeCode(m, code, header, body), object["kind"], columns, rows)
}

// seeMedia is the code and the media type of an answer.
func seeMedia(m *machinery, code int, header http.Header, body string) string {
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return seeCode(m, code, header, body) + " " + media
}

// seeVerbs is what can be done with the kinds of a discovery document.
func seeVerbs(m *machinery, code int, header http.Header, body string) string {
	out := seeCode(m, code, header, body)
	resources, _ := asObject(body)["resources"].([]any)
	for _, r := range resources {
		resource, _ := r.(map[string]any)
		if resource["name"] == "serviceentries" {
			all := fmt.Sprint(resource["verbs"])
			words := strings.Fields(strings.Trim(all, "[]"))
			slices.Sort(words)
			out += fmt.Sprintf(" %v %v %v", words, resource["namespaced"], resource["shortNames"])
		}
	}
	return out
}

// serviceEntry is an object with a name; edits replace text in it.
func serviceEntry(name string, edits ...string) string {
	return strings.NewReplacer(edits...).Replace(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"` + name + `","namespace":"shop","labels":{"app":"` + name + `"}},` +
		`"spec":{"hosts":["` + name + `.shop"],"location":"MESH_INTERNAL","resolution":"STATIC","ports":[{"number":80,"name":"http","protocol":"HTTP"}],"endpoints":[{"address":"10.0.0.1"}]}}`)
}

const (
	mergePatch = "application/merge-patch+json"
	jsonPatch  = "application/json-patch+json"
	applyPatch = "application/apply-patch+yaml"
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	strict     = "one that names no version is taken too: a PUT of a whole object says what it wants, and a version is there for who wants it compared"
	again      = "the objects of one batch share a version, so a watch from it begins with them (cmd/portolan/rest/doc.go)"
	unknown    = "a field that nobody knows is refused, whatever is asked: it would have no effect, and nobody would see that"
	fromApply  = "managed fields begin with the first server-side apply (docs/decisions/handlers-are-ours-the-machinery-is-not.md)"
)

// scenario is what is compared.
var scenario = []machineryStep{
	{name: "discovery", method: "GET", path: "/apis/networking.istio.io/v1", look: seeVerbs},
	{name: "create", method: "POST", body: serviceEntry("a"), look: remember("a")},
	{name: "create again", method: "POST", body: serviceEntry("a")},
	{name: "create as a dry run", method: "POST", path: "?dryRun=All", body: serviceEntry("dry")},
	{name: "get of what was a dry run", method: "GET", path: "/dry"},
	{name: "create with a version", method: "POST", body: serviceEntry("b", `"labels"`, `"resourceVersion":"1","labels"`),
		differs: "the fault is in the request, and the code says so", ours: "400 BadRequest"},
	{name: "create in another namespace", method: "POST", body: serviceEntry("b", `"namespace":"shop"`, `"namespace":"bank"`)},
	{name: "create without a name", method: "POST", body: serviceEntry("", `"name":"",`, "")},
	{name: "create with a generated name", method: "POST", body: serviceEntry("", `"name":"",`, `"generateName":"made-",`, `[".shop"]`, `["made.shop"]`, `"app":""`, `"made":"yes"`), look: seeAt("metadata.generateName", "metadata.labels"),
		differs: "what it was generated from is not kept: nothing uses it again", ours: `201 metadata.generateName=null metadata.labels={"made":"yes"}`},
	{name: "delete of a collection", method: "DELETE", path: "?labelSelector=made%3Dyes", look: seeAt("kind")},
	{name: "what is left", method: "GET", look: seeNames},
	{name: "another", method: "POST", body: serviceEntry("b"), look: remember("b")},
	{name: "a third", method: "POST", body: serviceEntry("c"), look: remember("c")},

	{name: "list by label", method: "GET", path: "?labelSelector=app+in+(a,c)", look: seeNames},
	{name: "list by field", method: "GET", path: "?fieldSelector=metadata.name%3Db", look: seeNames},
	{name: "list by another field", method: "GET", path: "?fieldSelector=metadata.name%21%3Db", look: seeNames},
	{name: "list by a field that is none", method: "GET", path: "?fieldSelector=spec.hosts%3Db"},
	{name: "list by a broken label selector", method: "GET", path: "?labelSelector=a%3D%3D%3Db"},
	{name: "a page", method: "GET", path: "?limit=2", look: seeNames},
	{name: "the next page", method: "GET", path: "?limit=2&continue=$continue", look: seeNames},
	{name: "a page by label has no count", method: "GET", path: "?limit=1&labelSelector=app", look: seeNames},
	{name: "a continue token that is none", method: "GET", path: "?limit=2&continue=xyz"},
	{name: "a page with a version beside the token", method: "GET", path: "?limit=2&continue=$continue&resourceVersion=1"},
	{name: "a version that is none", method: "GET", path: "?resourceVersion=abc"},
	{name: "a match without a version", method: "GET", path: "?resourceVersionMatch=Exact"},
	{name: "a match that is none", method: "GET", path: "?resourceVersionMatch=Roughly&resourceVersion=1"},
	{name: "exactly an earlier version", method: "GET", path: "?resourceVersionMatch=Exact&resourceVersion=$b", look: seeNames},
	{name: "not older than", method: "GET", path: "?resourceVersionMatch=NotOlderThan&resourceVersion=$c", look: seeNames},
	{name: "any", method: "GET", path: "?resourceVersion=0", look: seeNames},

	{name: "a table", method: "GET", accept: asTable, look: seeTable},
	{name: "a table of one", method: "GET", path: "/a", accept: asTable + ",application/json", look: seeTable},
	{name: "a table with objects", method: "GET", path: "/a?includeObject=Object", accept: asTable, look: seeTable},
	{name: "a table without objects", method: "GET", path: "/a?includeObject=None", accept: asTable, look: seeTable},
	{name: "metadata alone", method: "GET", path: "/a", accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", look: seeAt("kind", "apiVersion", "metadata.name", "spec")},
	{name: "a list of metadata", method: "GET", accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", look: seeNames},
	{name: "protobuf or JSON", method: "GET", path: "/a", accept: "application/vnd.kubernetes.protobuf,application/json", look: seeMedia},
	{name: "YAML", method: "GET", path: "/a", accept: "application/yaml", look: seeMedia},
	{name: "anything", method: "GET", path: "/a", accept: "*/*", look: seeMedia},
	{name: "what no server has", method: "GET", path: "/a", accept: "text/csv"},

	{name: "watch from a version", method: "GET", path: "?watch=1&timeoutSeconds=1&resourceVersion=$a", look: seeEvents,
		differs: again, ours: "200, ADDED a, ADDED made-xxxxx, DELETED made-xxxxx, ADDED b, ADDED c"},
	{name: "watch with the present first", method: "GET", path: "?watch=1&timeoutSeconds=1", look: seeEvents},
	{name: "watch that streams a list", method: "GET", path: "?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", look: seeEvents},
	{name: "watch that streams a list without a match", method: "GET", path: "?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true"},
	{name: "watch by label", method: "GET", path: "?watch=1&timeoutSeconds=1&resourceVersion=$a&labelSelector=app%3Dc", look: seeEvents},
	{name: "b leaves a selection", method: "PATCH", path: "/b", media: mergePatch, body: `{"metadata":{"labels":{"app":"other"}}}`, look: seeAt("metadata.labels")},
	{name: "watch of what it leaves", method: "GET", path: "?watch=1&timeoutSeconds=1&resourceVersion=$c&labelSelector=app%3Db", look: seeEvents},
	{name: "watch of metadata", method: "GET", path: "?watch=1&timeoutSeconds=1&resourceVersion=$c", accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", look: seeEvents,
		differs: again, ours: "200, ADDED c, MODIFIED b"},

	{name: "put without a version", method: "PUT", path: "/a", body: serviceEntry("a"), differs: strict, ours: "200"},
	{name: "put of a stale version", method: "PUT", path: "/a", body: serviceEntry("a", `"labels"`, `"resourceVersion":"1","labels"`)},
	{name: "put with another uid", method: "PUT", path: "/a", body: serviceEntry("a", `"labels"`, `"resourceVersion":"$a","uid":"x","labels"`)},
	{name: "put of nothing", method: "PUT", path: "/none", body: serviceEntry("none", `"labels"`, `"resourceVersion":"$a","labels"`)},
	{name: "put under another name", method: "PUT", path: "/b", body: serviceEntry("a")},
	{name: "put of the same", method: "PUT", path: "/a", body: serviceEntry("a", `"labels"`, `"resourceVersion":"$a","labels"`), look: seeAt("metadata.generation")},

	{name: "merge patch", method: "PATCH", path: "/a", media: mergePatch, body: `{"metadata":{"labels":{"x":"y","app":null}}}`, look: seeAt("metadata.labels", "metadata.generation")},
	{name: "merge patch of the spec", method: "PATCH", path: "/a", media: mergePatch, body: `{"spec":{"resolution":"DNS","endpoints":null}}`, look: seeAt("spec.resolution", "spec.endpoints", "metadata.generation")},
	{name: "merge patch with a stale version", method: "PATCH", path: "/a", media: mergePatch, body: `{"metadata":{"resourceVersion":"1"},"spec":{"resolution":"STATIC"}}`},
	{name: "merge patch of nothing", method: "PATCH", path: "/none", media: mergePatch, body: `{}`},
	{name: "merge patch of the name", method: "PATCH", path: "/a", media: mergePatch, body: `{"metadata":{"name":"z"}}`},
	{name: "merge patch that is a list", method: "PATCH", path: "/a", media: mergePatch, body: `[]`},
	{name: "merge patch of what servers set", method: "PATCH", path: "/a", media: mergePatch, body: `{"metadata":{"generation":50,"uid":null}}`, look: seeAt("metadata.generation")},
	{name: "merge patch of an unknown field", method: "PATCH", path: "/a?fieldValidation=Strict", media: mergePatch, body: `{"spec":{"nothing":1}}`,
		differs: "what cannot be read is 400 in every write, as it is in a create there", ours: "400 BadRequest"},
	{name: "merge patch of an unknown field, with a warning", method: "PATCH", path: "/a?fieldValidation=Warn", media: mergePatch, body: `{"spec":{"nothing":1}}`, differs: unknown, ours: "400 BadRequest"},
	{name: "JSON patch", method: "PATCH", path: "/a", media: jsonPatch, body: `[{"op":"replace","path":"/spec/hosts/0","value":"a2.shop"},{"op":"test","path":"/metadata/name","value":"a"}]`, look: seeAt("spec.hosts")},
	{name: "JSON patch whose test fails", method: "PATCH", path: "/a", media: jsonPatch, body: `[{"op":"test","path":"/metadata/name","value":"b"}]`},
	{name: "JSON patch of no such path", method: "PATCH", path: "/a", media: jsonPatch, body: `[{"op":"remove","path":"/spec/nothing"}]`},
	{name: "JSON patch that is none", method: "PATCH", path: "/a", media: jsonPatch, body: `{"op":"remove"}`},
	{name: "strategic merge patch", method: "PATCH", path: "/a", media: "application/strategic-merge-patch+json", body: `{}`},
	{name: "a patch without a type", method: "PATCH", path: "/a", body: `{}`},
	{name: "patch as a dry run", method: "PATCH", path: "/a?dryRun=All", media: mergePatch, body: `{"metadata":{"labels":{"dry":"run"}}}`, look: seeAt("metadata.labels")},
	{name: "after the dry run", method: "GET", path: "/a", look: seeAt("metadata.labels")},
	{name: "dry run that is none", method: "PATCH", path: "/a?dryRun=Some", media: mergePatch, body: `{}`},

	{name: "apply makes", method: "PATCH", path: "/s?fieldManager=one", media: applyPatch, body: serviceEntry("s"), look: seeManagers},
	{name: "apply again", method: "PATCH", path: "/s?fieldManager=one", media: applyPatch, body: serviceEntry("s"), look: seeManagers},
	{name: "apply without a manager", method: "PATCH", path: "/s", media: applyPatch, body: serviceEntry("s")},
	{name: "apply under another name", method: "PATCH", path: "/s?fieldManager=one", media: applyPatch, body: serviceEntry("t")},
	{name: "apply of another kind", method: "PATCH", path: "/s?fieldManager=one", media: applyPatch, body: serviceEntry("s", `"ServiceEntry"`, `"Gateway"`)},
	{name: "apply with managed fields", method: "PATCH", path: "/s?fieldManager=one", media: applyPatch, body: serviceEntry("s", `"labels"`, `"managedFields":[{}],"labels"`)},
	{name: "apply by another, of a label", method: "PATCH", path: "/s?fieldManager=two", media: applyPatch, body: `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"s","labels":{"tier":"front"}}}`, look: seeManagers},
	{name: "apply that conflicts", method: "PATCH", path: "/s?fieldManager=two", media: applyPatch, body: `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"s","labels":{"app":"x"}},"spec":{"resolution":"DNS"}}`},
	{name: "apply by force", method: "PATCH", path: "/s?fieldManager=two&force=true", media: applyPatch, body: `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"s","labels":{"app":"x"}}}`, look: seeManagers},
	{name: "apply in another version", method: "PATCH", path: "/apis/networking.istio.io/v1beta1/namespaces/shop/serviceentries/s?fieldManager=three", media: applyPatch,
		body: `{"apiVersion":"networking.istio.io/v1beta1","kind":"ServiceEntry","metadata":{"name":"s","annotations":{"a/b":"c"}}}`, look: seeManagers},
	{name: "apply that takes away", method: "PATCH", path: "/s?fieldManager=three", media: applyPatch,
		body: `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"s"}}`, look: seeAt("metadata.annotations")},
	{name: "merge patch of an applied field", method: "PATCH", path: "/s?fieldManager=editor", media: mergePatch, body: `{"metadata":{"labels":{"app":"edited"}}}`, look: seeManagers},
	{name: "apply of a list that another has set", method: "PATCH", path: "/s?fieldManager=two", media: applyPatch,
		body: `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"s"},"spec":{"ports":[{"number":90,"name":"http","protocol":"HTTP"}]}}`},
	{name: "managed fields away", method: "PATCH", path: "/s", media: jsonPatch, body: `[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`, look: seeManagers},
	{name: "first apply of an object", method: "PATCH", path: "/c?fieldManager=one", media: applyPatch, body: serviceEntry("c", "10.0.0.1", "10.0.0.9"), look: seeCode},
	{name: "its managers", method: "PATCH", path: "/c?fieldManager=one&force=true", media: applyPatch, body: serviceEntry("c", "10.0.0.1", "10.0.0.9"), look: seeManagers,
		differs: fromApply, ours: "200\n" +
			`    one Apply networking.istio.io/v1 {"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:endpoints":{},"f:hosts":{},"f:location":{},"f:ports":{"k:{\"name\":\"http\"}":{".":{},"f:name":{},"f:number":{},"f:protocol":{}}},"f:resolution":{}}}` + "\n" +
			`    before-first-apply Update networking.istio.io/v1 {"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{".":{},"f:hosts":{},"f:location":{},"f:ports":{".":{},"k:{\"name\":\"http\"}":{".":{},"f:name":{},"f:number":{},"f:protocol":{}}},"f:resolution":{}}}`},
	{name: "apply as a dry run makes nothing", method: "PATCH", path: "/never?fieldManager=one&dryRun=All", media: applyPatch, body: serviceEntry("never")},
	{name: "it is not there", method: "GET", path: "/never"},

	{name: "delete with another uid", method: "DELETE", path: "/a", body: `{"preconditions":{"uid":"x"}}`},
	{name: "delete with a stale version", method: "DELETE", path: "/a", body: `{"preconditions":{"resourceVersion":"1"}}`},
	{name: "delete as a dry run", method: "DELETE", path: "/a?dryRun=All", look: seeAt("kind", "status")},
	{name: "delete", method: "DELETE", path: "/a", look: seeAt("kind", "status", "details.name", "details.kind")},
	{name: "delete again", method: "DELETE", path: "/a"},
	{name: "delete of a collection, as a dry run", method: "DELETE", path: "?dryRun=All", look: seeNames},
	{name: "delete of the rest", method: "DELETE", look: seeNames},
	{name: "nothing is left", method: "GET", look: seeNames},
	{name: "a kind that is none", method: "GET", path: "/apis/networking.istio.io/v1/namespaces/shop/widgets", differs: "the answer says what there is", ours: "404 NotFound"},
}

// variable is what differs between two runs.
var variable = regexp.MustCompile(`made-\w{5}`)

// outcomes runs the scenario.
func outcomes(t *testing.T, api kubeAPI) map[string]string {
	t.Helper()
	m := &machinery{t: t, api: api, versions: map[string]string{}, seen: map[string]string{}}
	out := map[string]string{}
	for _, s := range slices.Concat(scenario, statusScenario) {
		if _, twice := out[s.name]; twice {
			t.Fatalf("two steps are called %q", s.name)
		}
		out[s.name] = variable.ReplaceAllString(m.run(s), "made-xxxxx")
	}
	return out
}

// recorded reads the answers of Kubernetes' own server.
func recorded(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(machineryFile)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(string(text), "# "), "\n# ") {
		name, answer, _ := strings.Cut(part, "\n")
		out[name] = strings.TrimSuffix(answer, "\n")
	}
	return out
}

// TestAPIMachinery: Portolan answers as Kubernetes' own server has answered.
func TestAPIMachinery(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	want := recorded(t)
	got := outcomes(t, kubeAPI{url: "http://" + s.api, client: http.DefaultClient})
	for _, s := range slices.Concat(scenario, statusScenario) {
		expected := want[s.name]
		if s.differs != "" {
			if got[s.name] == expected {
				t.Errorf("%s: it does not differ any more: %s", s.name, expected)
			}
			expected = s.ours
		}
		if got[s.name] != expected {
			t.Errorf("%s:\n got  %s\n want %s", s.name, got[s.name], expected)
		}
	}
}

// TestSoakAPIMachinery: the recorded answers are those of Kubernetes' own server.
func TestSoakAPIMachinery(t *testing.T) {
	write := os.Getenv("PORTOLAN_GOLDEN") == "write"
	if longtest.Soak(t) == 0 && !write {
		t.Skip("make soak runs kube-apiserver, which takes minutes to build")
	}
	if _, err := os.Stat(kubeAPIServerBinary); err != nil {
		t.Fatalf("there is no kube-apiserver (%v): run make kube-apiserver", err)
	}
	got := outcomes(t, startKubeAPIServer(t, kubeAPIServerBinary))
	if write {
		var out strings.Builder
		for _, s := range slices.Concat(scenario, statusScenario) {
			fmt.Fprintf(&out, "# %s\n%s\n", s.name, got[s.name])
		}
		if err := os.WriteFile(machineryFile, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := recorded(t)
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name] != want[name] {
			t.Errorf("%s:\n got  %s\n want %s", name, got[name], want[name])
		}
	}
}
