package objects

import (
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema/schematest"
	"github.com/portolan-mesh/portolan/xds/admin"
)

// noteAPI is a config API that serves Notes and Boxes, and a command line that knows
// them.
type noteAPI struct{ *resttest.Server }

// startNotes starts a noteAPI that can describe one object.
func startNotes(t *testing.T, kind, name string) noteAPI {
	t.Helper()
	return noteAPI{resttest.StartKinds(t, schematest.Kinds(), func(s *rest.Server) {
		for _, path := range []string{admin.PropagationPath, admin.ReferencesPath} {
			s.Endpoint("GET "+path, func(w http.ResponseWriter, r *http.Request) error {
				if q := r.URL.Query(); q.Get("kind") != kind || q.Get("group") != "" || q.Get("name") != name {
					return refusal.BadRequest(r.URL.RawQuery)
				}
				rest.WriteJSON(w, http.StatusOK, struct{}{})
				return nil
			})
		}
	})}
}

func (a noteAPI) Do(t *testing.T, stdin string, args ...string) clitest.Outcome {
	t.Helper()
	return line.DoAs(t, stdin, func(e *cli.Environment) { e.Schemas = schematest.Kinds() }, append(args, "--server", a.URL)...)
}

// want runs a command that must exit with a code and print some text.
func (a noteAPI) want(t *testing.T, code int, text, stdin string, args ...string) string {
	t.Helper()
	o := a.Do(t, stdin, args...)
	if o.Code != code || !strings.Contains(o.Out+o.Err, text) {
		t.Errorf("%v: exit code %d, want %d and %q:\n%s%s", args, o.Code, code, text, o.Out, o.Err)
	}
	return o.Out
}

const tea = `apiVersion: v1
kind: Note
metadata: {name: tea, namespace: shop}
spec:
  title: Tea
  lines: [{text: boil}]
`

// TestCommandsOnAKindOfTheCoreGroup: every command handles a kind whose spec is no protobuf
// message, like the kinds of Istio.
func TestCommandsOnAKindOfTheCoreGroup(t *testing.T) {
	t.Parallel()
	a := startNotes(t, "Note", "tea")
	a.want(t, exit.OK, "notes  ", "", "api-resources")
	a.want(t, exit.Data, "stdin: document 1 (line 1): note/shop/tea: spec.titel: unknown field: did you mean title?", strings.Replace(tea, "title", "titel", 1), "apply", "-f", "-")
	a.want(t, exit.Data, "spec.title: is missing", strings.Replace(tea, "  title: Tea\n", "", 1), "apply", "-f", "-")
	a.want(t, exit.Differences, "+  title: Tea", tea, "diff", "-f", "-")
	a.want(t, exit.OK, "note/shop/tea  created", tea, "apply", "-f", "-")
	a.want(t, exit.OK, "note/shop/tea  unchanged", tea, "apply", "-f", "-")
	a.want(t, exit.OK, "", tea, "diff", "-f", "-")
	changed := strings.Replace(tea, "boil", "boil water", 1)
	a.want(t, exit.Differences, "+  - text: boil water", changed, "diff", "-f", "-")
	a.want(t, exit.OK, "note/shop/tea  configured", changed, "apply", "-f", "-")
	a.want(t, exit.OK, "lines[0].text boil -> boil water", "", "history", "nt/tea", "-n", "shop")
	a.want(t, exit.OK, "note/shop/tea", "", "audit", "notes", "-A")
	a.want(t, exit.OK, "tea ", "", "get", "notes", "-n", "shop")
	a.want(t, exit.OK, "PROGRAMMED", "", "get", "note/tea", "-n", "shop", "-o", "wide")
	a.want(t, exit.OK, "  - text: boil\n", "", "get", "note", "tea", "-n", "shop", "-o", "yaml", "--revision", "2")
	a.want(t, exit.OK, "note/shop/tea  changed", "", "describe", "note/tea", "-n", "shop")
	exported := a.want(t, exit.OK, "apiVersion: v1\nkind: Note\n", "", "export", "notes")
	a.want(t, exit.OK, "note/shop/tea", "", "rollback", "note/tea", "-n", "shop", "--to-revision", "2")
	a.want(t, exit.OK, "note/shop/tea  configured", exported, "import", "-f", "-")
	a.want(t, exit.OK, "note/shop/tea  deleted", "", "delete", "note/tea", "-n", "shop")
	a.want(t, exit.Failure, "not found", "", "get", "note/tea", "-n", "shop")
}

const tools = `apiVersion: v1
kind: Box
metadata: {name: tools, namespace: shop}
type: oak
data: {key: AAEC}
words: {a: "1"}
`

// TestCommandsOnASpecAtTheTopLevel: every command handles a kind whose fields are beside
// metadata, and shows them there.
func TestCommandsOnASpecAtTheTopLevel(t *testing.T) {
	t.Parallel()
	a := startNotes(t, "Box", "tools")
	a.want(t, exit.Data, "stdin: document 1 (line 1): box/shop/tools: tpye: unknown field: did you mean type?", strings.Replace(tools, "type", "tpye", 1), "apply", "-f", "-")
	a.want(t, exit.Data, "box/shop/tools: type: is missing", strings.Replace(tools, "type: oak\n", "", 1), "apply", "-f", "-")
	a.want(t, exit.Data, "box/shop/tools: spec: unknown field", tools+"spec: {}\n", "apply", "-f", "-")
	a.want(t, exit.Differences, "+type: oak", tools, "diff", "-f", "-")
	a.want(t, exit.OK, "box/shop/tools  created", tools, "apply", "-f", "-")
	a.want(t, exit.OK, "box/shop/tools  unchanged", tools, "apply", "-f", "-")
	a.want(t, exit.OK, "", tools, "diff", "-f", "-")
	changed := strings.Replace(tools, `a: "1"`, `a: "2"`, 1)
	a.want(t, exit.Differences, "+  a: \"2\"", changed, "diff", "-f", "-")
	a.want(t, exit.OK, "box/shop/tools  configured", changed, "apply", "-f", "-")
	a.want(t, exit.OK, "words.a 1 -> 2", "", "history", "bx/tools", "-n", "shop")
	a.want(t, exit.OK, "tools ", "", "get", "boxes", "-n", "shop", "-o", "wide")
	shown := a.want(t, exit.OK, "\ntype: oak\nwords:\n  a: \"2\"\n", "", "get", "box/tools", "-n", "shop", "-o", "yaml")
	a.want(t, exit.OK, "box/shop/tools  unchanged", shown, "apply", "-f", "-")
	a.want(t, exit.OK, "\"type\": \"oak\"", "", "get", "box/tools", "-n", "shop", "-o", "json")
	a.want(t, exit.Differences, "-  a: \"1\"\n+  a: \"2\"", "", "diff", "box/tools", "-n", "shop", "--from", "2")
	a.want(t, exit.OK, "box/shop/tools  changed", "", "describe", "box/tools", "-n", "shop")
	exported := a.want(t, exit.OK, "\ntype: oak\n", "", "export", "boxes")
	a.want(t, exit.OK, "box/shop/tools", "", "rollback", "box/tools", "-n", "shop", "--to-revision", "2")
	a.want(t, exit.OK, "a: \"1\"", "", "get", "box/tools", "-n", "shop", "-o", "yaml")
	a.want(t, exit.OK, "box/shop/tools  configured", exported, "import", "-f", "-")
	a.want(t, exit.OK, "box/shop/tools  deleted", "", "delete", "box/tools", "-n", "shop")
}
