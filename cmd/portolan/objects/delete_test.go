package objects

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// ignoreHint is the output of a delete that finds nothing.
const ignoreHint = "portolan get KIND -A shows the objects of all namespaces; --ignore-not-found takes objects that do not exist for deleted\n"

func TestDelete(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	files := clitest.Entry("a", ", namespace: shop") + "---\n" + clitest.Entry("b", ", namespace: shop") + "---\n" + clitest.Entry("c", ", namespace: shop")
	a.Must(t, files, "apply", "-f", "-")

	o := a.Do(t, "", "delete", "se", "a", "nope", "-n", "shop")
	if want := (clitest.Outcome{Code: exit.Failure, Err: "portolan: nothing was deleted: delete serviceentry/shop/nope: not found\n" + ignoreHint}); o != want {
		t.Errorf("%+v", o)
	}
	clitest.Same(t, "ignoring", a.Must(t, "", "delete", "se", "nope", "a", "-n", "shop", "--ignore-not-found"),
		"serviceentry/shop/a  deleted  rev 3\n")
	clitest.Same(t, "ignoring all", a.Must(t, "", "delete", "se", "nope", "a", "-n", "shop", "--ignore-not-found"), "")

	o = a.Do(t, files, "delete", "-f", "-")
	if want := (clitest.Outcome{Code: exit.Failure, Err: "portolan: nothing was deleted: stdin: document 1 (line 1): delete serviceentry/shop/a: not found\n" + ignoreHint}); o != want {
		t.Errorf("%+v", o)
	}
	o = a.Do(t, clitest.Entry("b", `, namespace: shop, resourceVersion: "1"`), "delete", "-f", "-", "--ignore-not-found")
	if o.Code != exit.Conflict {
		t.Errorf("%+v", o)
	}
	if v := a.Store.Version(); v != "3" {
		t.Errorf("the store is at %s", v)
	}
	clitest.Same(t, "one change", a.Must(t, files, "delete", "-f", "-", "--ignore-not-found"),
		"serviceentry/shop/b  deleted  rev 4\nserviceentry/shop/c  deleted  rev 4\n")
}

// TestDeleteOfFilesThatWereNeverApplied: the command lists all objects, says once what to do,
// and exits like kubectl.
func TestDeleteOfFilesThatWereNeverApplied(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	files := clitest.Entry("a", ", namespace: shop") + "---\n" + clitest.Entry("b", ", namespace: shop")
	o := a.Do(t, files, "delete", "-f", "-")
	if o.Code != exit.Failure || o.Out != "" || strings.Count(o.Err, ": not found\n") != 2 || !strings.HasSuffix(o.Err, "\n"+ignoreHint) || strings.Count(o.Err, ignoreHint) != 1 {
		t.Errorf("%+v", o)
	}
	clitest.Same(t, "ignoring", a.Must(t, files, "delete", "-f", "-", "--ignore-not-found"), "")
	o = a.Do(t, clitest.Entry("a", `, namespace: shop, resourceVersion: "1"`)+"---\n"+clitest.Entry("b", ", namespace: shop"), "delete", "-f", "-", "--dry-run=server")
	if o.Code != exit.Failure || !strings.HasSuffix(o.Err, ignoreHint) {
		t.Errorf("dry run: %+v", o)
	}
}

func TestDeleteTakesObjectsThatAreNotValid(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("a", ""), "apply", "-f", "-")
	clitest.Same(t, "by key", a.Must(t, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a}\n", "delete", "-f", "-"),
		"serviceentry/default/a  deleted  rev 3\n")
}

func TestDeleteBadFile(t *testing.T) {
	t.Parallel()
	o := do(t, "kind: [", "delete", "-f", "-")
	if o.Code != exit.Data || o.Out != "" {
		t.Errorf("%+v", o)
	}
}

// danglingAdvisor is an advisor for which object "b" refers to "a", and dangles if only "a" is
// deleted.
type danglingAdvisor struct{}

func (danglingAdvisor) Advise(ops []storage.Op) [][]finding.Advice {
	out := make([][]finding.Advice, len(ops))
	both := false
	for _, op := range ops {
		both = both || op.Target().Name == "b"
	}
	for i, op := range ops {
		if op.Config == nil && op.Target().Name == "a" && !both {
			out[i] = []finding.Advice{{Text: "serviceentry/default/b: spec.x is lost", Dangling: true}, {Text: "serviceentry/default/c: less important", Severity: "info"}}
		}
	}
	return out
}

func (danglingAdvisor) Await(context.Context, int64) error { return nil }

func (danglingAdvisor) Findings([]storage.Op) (finding.List, bool) { return finding.List{}, true }

// deleteAt runs a delete at a terminal, with this answer of the user.
func deleteAt(t *testing.T, a clitest.API, answer string, args ...string) clitest.Outcome {
	t.Helper()
	return line.DoAs(t, answer, clitest.AtTerminal, append([]string{"delete", "--server", a.URL}, args...)...)
}

// TestDeleteOfWhatOthersReferTo: the command names the referring objects and asks on a
// terminal. Without a terminal it refuses, unless --yes is given.
func TestDeleteOfWhatOthersReferTo(t *testing.T) {
	t.Parallel()
	a := line.On(resttest.Start(t, 0, func(o *rest.Options) { o.Advisor = danglingAdvisor{} }))
	files := clitest.Entry("a", "") + "---\n" + clitest.Entry("b", "") + "---\n" + clitest.Entry("c", "")
	a.Must(t, files, "apply", "-f", "-")
	const (
		named    = "Others refer to serviceentry/default/a. Without it:\n  serviceentry/default/b: spec.x is lost\n"
		question = named + "Delete it nevertheless? [y/N] "
		warnings = "Warning: serviceentry/default/a: serviceentry/default/b: spec.x is lost\nInfo: serviceentry/default/a: serviceentry/default/c: less important\n"
	)
	o := a.Do(t, "", "delete", "se/a", "se/c")
	unnamed := strings.Replace(named, "serviceentry/default/a. Without it", "objects that would go. Without them", 1) // the server tells no references
	if want := (clitest.Outcome{Code: exit.Usage, Err: unnamed + "portolan: nothing was deleted: others refer to it, and there is no terminal to ask on: add --yes, or delete those objects in the same command\n"}); o != want {
		t.Errorf("without a terminal: %+v", o)
	}
	if o := deleteAt(t, a, "n\n", "se/a"); o != (clitest.Outcome{Code: exit.Failure, Err: question + "nothing was deleted: you did not say yes"}) {
		t.Errorf("no: %+v", o)
	}
	if v := a.Store.Version(); v != "2" {
		t.Fatalf("the store is at %s", v)
	}
	if o := a.Do(t, "", "delete", "se/c"); o != (clitest.Outcome{Code: exit.OK, Out: "serviceentry/default/c  deleted  rev 3\n"}) {
		t.Errorf("what nobody refers to: %+v", o)
	}
	if o := deleteAt(t, a, "yes\n", "se/a"); o != (clitest.Outcome{Code: exit.OK, Out: "serviceentry/default/a  deleted  rev 4\n", Err: question + warnings}) {
		t.Errorf("yes: %+v", o)
	}
	a.Must(t, files, "apply", "-f", "-")
	if o := a.Do(t, "", "delete", "se/a", "--yes"); o != (clitest.Outcome{Code: exit.OK, Out: "serviceentry/default/a  deleted  rev 6\n", Err: warnings}) {
		t.Errorf("--yes: %+v", o)
	}
	a.Must(t, files, "apply", "-f", "-")
	if o := a.Do(t, "", "delete", "se/a", "--dry-run=server"); o.Code != exit.OK || o.Err != warnings {
		t.Errorf("a dry run: %+v", o)
	}
	if o := a.Do(t, "", "delete", "se/a", "se/b"); o.Code != exit.OK || o.Err != "" {
		t.Errorf("with those that refer to it: %+v", o)
	}
}

// TestDeleteNamesWhatIsReferredTo: of several objects the command names those that others refer to,
// whichever operation the server tells of them with.
func TestDeleteNamesWhatIsReferredTo(t *testing.T) {
	t.Parallel()
	const web, db = "virtualservice/shop/web", "virtualservice/shop/db"
	for _, test := range []struct {
		from map[string][]string // those that refer to an object of this name
		want string
	}{
		{map[string][]string{"edge": {db, web}}, "gateway/shop/edge. Without it:"},
		{map[string][]string{"a": {db}, "edge": {web}}, "destinationrule/shop/a, gateway/shop/edge. Without them:"},
		{map[string][]string{"edge": {web}}, "objects that would go, such as gateway/shop/edge. Without them:"},
		{map[string][]string{"a": {"virtualservice/shop/other"}}, "objects that would go. Without them:"},
	} {
		answer := func(r *http.Request) any {
			if r.URL.Path == admin.ReferencesPath {
				var to admin.References
				for _, from := range test.from[r.URL.Query().Get("name")] {
					to.From = append(to.From, admin.Reference{Object: from})
				}
				return to
			}
			return `{"results": [{"dangling": ["` + web + `: there is none", "` + db + `: there is none"]}, {}]}`
		}
		out, err := serving(t, answer, "delete", "dr/a", "gw/edge", "-n", "shop")
		if err == nil || out.Err != "Others refer to "+test.want+"\n  "+web+": there is none\n  "+db+": there is none\n" {
			t.Errorf("%v: %+v, %v", test.from, out, err)
		}
	}
}

// TestOutputOfWrites: every command that writes can print its result in each form.
func TestOutputOfWrites(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	files := clitest.Entry("a", "") + "---\n" + clitest.Entry("b", "")
	const names = "serviceentry/default/a\nserviceentry/default/b\n"
	a.Must(t, files, "apply", "-f", "-")
	exported := a.Must(t, "", "export")
	for _, command := range []struct {
		stdin, args, outcome string
	}{
		{strings.ReplaceAll(files, "10.0.0.1", "10.0.0.2"), "apply -f -", "configured"},
		{"", "rollback -A --to-revision 2 --yes", "configured"},
		{files, "apply -f - --dry-run=client", "valid"},
		{"", "delete se a b --dry-run=server", "deleted"},
		{"", "delete se a b", "deleted"},
		{exported, "import -f -", "created"},
	} {
		args := strings.Fields(command.args)
		var result batch.Result
		if err := json.Unmarshal([]byte(a.Must(t, command.stdin, append(args, "-o", "json")...)), &result); err != nil {
			t.Fatalf("%s: %v", command.args, err)
		}
		if result.Kind != batch.ResultKind || len(result.Results) != 2 || result.Results[0].Name != "a" || result.Results[0].Outcome != command.outcome {
			t.Errorf("%s: %+v", command.args, result)
		}
	}
	clitest.Same(t, "name", a.Must(t, files, "apply", "-f", "-", "-o", "name"), names)
	clitest.Same(t, "name of a dry run", a.Must(t, "", "delete", "se", "a", "b", "-o", "name", "--dry-run=server"), names)
	if out := a.Must(t, files, "apply", "-f", "-", "-o", "yaml"); !strings.HasPrefix(out, "apiVersion: portolan.io/v1\nkind: BatchResult\n") {
		t.Errorf("yaml: %s", out)
	}
	o := a.Do(t, files, "apply", "-f", "-", "-o", "yaml", "--chunks", "1")
	if parts := strings.Split(o.Out, "---\n"); len(parts) != 2 || !strings.Contains(parts[1], "name: b") || !strings.HasPrefix(o.Err, "part 1 of 2: objects 1-1: rev ") {
		t.Errorf("parts: %+v", o)
	}
}

// TestWritesWait: every command that writes can wait for the proxies. It reports that
// separately from the output for programs.
func TestWritesWait(t *testing.T) {
	t.Parallel()
	a := line.On(resttest.Start(t, 0, nil, func(s *rest.Server) {
		s.Endpoint(admin.PropagationPath, func(w http.ResponseWriter, r *http.Request) error {
			d := progress.Distribution{Revision: 7}
			d.Accepted = 3
			if r.URL.Query().Get("change") == "" {
				d.NotConcerned = 1
			}
			rest.WriteJSON(w, http.StatusOK, admin.Propagation{Distribution: d})
			return nil
		})
	}))
	a.Must(t, clitest.Entry("a", ""), "apply", "-f", "-")
	exported := a.Must(t, "", "export")
	for _, command := range []struct{ stdin, args string }{
		{"", "delete se/a --wait"}, {exported, "import -f - --wait"}, {"", "rollback se/a --to-revision 1 --wait --timeout 20s"},
		{clitest.Entry("a", ""), "apply -f - --wait"},
	} {
		if out := a.Must(t, command.stdin, strings.Fields(command.args)...); !strings.Contains(out, "rev ") || !strings.Contains(out, "distributed  3/3 proxies") {
			t.Errorf("%s: %s", command.args, out)
		}
	}
	o := a.Do(t, "", "delete", "se/a", "--wait", "-o", "name")
	if o.Code != exit.OK || o.Out != "serviceentry/default/a\n" || !strings.Contains(o.Err, "distributed  3/3 proxies") {
		t.Errorf("beside names: %+v", o)
	}
}
