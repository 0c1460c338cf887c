package objects

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// ages finds the ages of objects that a test has just made, and the blanks behind them.
var ages = regexp.MustCompile(`\b\d+s\b *`)

// aged returns a text with all ages replaced by 5s.
func aged(text string) string {
	return ages.ReplaceAllStringFunc(text, func(age string) string {
		if strings.HasSuffix(age, " ") {
			return fmt.Sprintf("%-*s", len(age), "5s")
		}
		return "5s"
	})
}

// startShop starts an API with an object of every kind.
func startShop(t *testing.T) clitest.API {
	t.Helper()
	a := line.On(resttest.Start(t, 0, func(o *rest.Options) { o.AcceptUnserved = true }))
	a.Must(t, "", "apply", "-f", "testdata/shop.yaml")
	return a
}

func TestGetTables(t *testing.T) {
	t.Parallel()
	a := startShop(t)
	var all strings.Builder
	show := func(args ...string) {
		all.WriteString("$ portolan " + strings.Join(args, " ") + "\n")
		all.WriteString(aged(a.Must(t, "", args...)) + "\n")
	}
	for _, kind := range schema.Pilot().All() {
		show("get", append(kind.ShortNames, kind.Plural)[0], "-n", "shop")
		show("get", kind.Singular, "-A", "-o", "wide")
	}
	show("get", "vs,dr", "-n", "shop", "--no-headers")
	show("get", "vs/reviews", "dr/shop/reviews", "-n", "shop", "-o", "name")
	golden.Assert(t, all.String(), "get.txt")
}

func TestGetYAMLMayBeApplied(t *testing.T) {
	t.Parallel()
	a := startShop(t)
	var kinds []string
	for _, kind := range schema.Pilot().All() {
		if kind.Group != access.Group || slices.Contains([]config.GroupVersionKind{schema.RevokedIdentity, schema.PeerPhase, schema.KeySet, schema.HostGrant}, kind.GroupVersionKind) { // the shop has none of the others
			kinds = append(kinds, kind.Plural)
		}
	}
	every := strings.Join(kinds, ",")
	before := a.Store.Version()
	for _, form := range []string{"yaml", "json"} {
		text := a.Must(t, "", "get", every, "-A", "-o", form)
		out := a.Must(t, text, "apply", "-f", "-")
		if n := strings.Count(out, "unchanged"); n != strings.Count(out, "\n") || n < len(kinds) {
			t.Errorf("%s: %s", form, out)
		}
	}
	if v := a.Store.Version(); v != before {
		t.Errorf("the store went from %s to %s", before, v)
	}
	resolve := schema.Pilot().Type
	written, err := os.ReadFile("testdata/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wrote, err := config.Decode("shop", written, resolve)
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Decode("get", []byte(a.Must(t, "", "get", every, "-A", "-o", "yaml")), resolve)
	if err != nil || len(got) != len(wrote) {
		t.Errorf("%d documents, %v; wrote %d", len(got), err, len(wrote))
	}
}

func TestGetJSON(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	clitest.Same(t, "empty", a.Must(t, "", "get", "vs", "-o", "json"), "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"List\",\n  \"items\": []\n}\n")
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	if out := a.Must(t, "", "get", "se", "x", "-o", "json"); !strings.HasPrefix(out, "{\n  \"apiVersion\": \"networking.istio.io/v1\"") {
		t.Errorf("one object: %s", out)
	}
	if out := a.Must(t, "", "get", "se", "-o", "json"); !strings.Contains(out, `"kind": "List"`) || !strings.Contains(out, `"x.shop"`) {
		t.Errorf("a list of one: %s", out)
	}
}

func TestGetSaysWhatThereIsNot(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	tests := []struct {
		args     []string
		code     int
		out, err string
	}{
		{[]string{"vs", "-n", "shop"}, exit.OK, "", "No virtualservices found in namespace shop; -A looks in all.\n"},
		{[]string{"vs", "-A"}, exit.OK, "", "No virtualservices found.\n"},
		{[]string{"vs", "-n", "shop", "--revision", "2"}, exit.OK, "", "No virtualservices found in namespace shop at revision 2; -A looks in all.\n"},
		{[]string{"vs", "-o", "yaml"}, exit.OK, "", "No virtualservices found in namespace default; -A looks in all.\n"},
		{[]string{"vs,se", "-o", "name"}, exit.OK, "serviceentry/default/x\n", "No virtualservices found in namespace default; -A looks in all.\n"},
		{[]string{"se", "y"}, exit.Failure, "",
			"portolan: serviceentry/default/y: not found: see those there are with portolan get serviceentries -A\n"},
		{[]string{"se", "y", "-o", "json"}, exit.Failure, "",
			"portolan: serviceentry/default/y: not found: see those there are with portolan get serviceentries -A\n"},
		{[]string{"se/x", "vs/x", "se/y", "-o", "name"}, exit.Failure, "serviceentry/default/x\n",
			"portolan: 2 faults:\n" +
				"  serviceentry/default/y: not found: see those there are with portolan get serviceentries -A\n" +
				"  virtualservice/default/x: not found: see those there are with portolan get virtualservices -A\n"},
	}
	for _, test := range tests {
		o := a.Do(t, "", append([]string{"get"}, test.args...)...)
		if o != (clitest.Outcome{Code: test.code, Out: test.out, Err: test.err}) {
			t.Errorf("get %v: %+v", test.args, o)
		}
	}
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	tests := []struct{ line, says string }{
		{"get", "name what to get: KIND, KIND NAME or KIND/NAME\nSee 'portolan get --help'"},
		{"get vs/q,dr/kdr", `"vs/q,dr/kdr" names several objects: separate them by spaces: vs/q dr/kdr`},
		{"get pods", `unknown kind "pods": portolan proxy status shows the proxies; portolan api-resources shows the kinds served`},
		{"get frobs", `unknown kind "frobs": see portolan api-resources for those served`},
		{"get vs.networking.k8s.io", `unknown kind "vs.networking.k8s.io": see portolan api-resources for those served`},
		{"get vs,", `unknown kind "": see portolan api-resources for those served`},
		{"get vs -o xml", `-o "xml": use table, wide, yaml, json, name, jsonpath=TEMPLATE, jsonpath-as-json=TEMPLATE, jsonpath-file=FILE, go-template=TEMPLATE, go-template-file=FILE, custom-columns=HEADER:PATH,... or custom-columns-file=FILE`},
		{"get vs -o jsonpath=.metadata.name", `-o jsonpath=.metadata.name: a template has its paths in braces, as in -o jsonpath='{.metadata.name}'`},
		{"get vs -o jsonpath={.x", "-o jsonpath={.x: unclosed action"},
		{"get vs -l a=b=c", `-l "a=b=c": found '=', expected: ',' or 'end of string'`},
		{"get vs x -l a=b", "-l selects among all objects of a kind: leave it out, or the names"},
		{"get vs -w --revision 3", "-w shows what changes from now on, and --revision what was: leave one of them out"},
		{"get vs --output-watch-events", "--output-watch-events says what -w sees: add it"},
		{"get vs -w --output-watch-events -o name", "--output-watch-events has no place in -o name: use table, wide, yaml or json"},
		{"get vs -A -n shop", "-A is all namespaces, and -n is one: leave one of them out"},
		{"get vs/x -A", "an object is in one namespace: name it with -n instead of -A"},
		{"get vs,dr x", "vs,dr x: give names of one kind, or KIND/NAME"},
		{"get vs x/y", `"x/y" is not a name: use vs NAME..., or KIND/NAME for each object`},
		{"get vs/x y", `"y" names no object: use KIND/NAME or KIND/NAMESPACE/NAME`},
		{"get vs/a/b/c", `"vs/a/b/c" names no object: use KIND/NAME or KIND/NAMESPACE/NAME`},
		{"get vs/shop/x -n edge", "vs/shop/x is in namespace shop, and -n says edge: leave one of them out"},
		{"get vs -o jsonpath", "-o jsonpath: say what to print: -o jsonpath=TEMPLATE"},
		{"get vs -o custom-columns=", "-o custom-columns=: say what to print: -o custom-columns=HEADER:PATH,..."},
		{"get vs -o custom-columns=NAME", `-o custom-columns=NAME: "NAME" is no column: give HEADER:PATH, as in NAME:.metadata.name`},
		{"get vs -o custom-columns=NAME:{.a}{.b}", `-o custom-columns=NAME:{.a}{.b}: "{.a}{.b}" is not the path of a field: give one such as .metadata.name`},
		{"get vs -o go-template={{.x", "-o go-template={{.x: template: -o:1: unclosed action"},
		{"get vs --sort-by {.x", `--sort-by: "{.x" is not the path of a field: give one such as .metadata.name`},
		{"get vs --sort-by .metadata.name -w", "--sort-by sorts what there is, and -w shows what changes: leave one of them out"},
		{"get vs --field-selector a", `--field-selector "a": invalid selector: 'a'; can't understand 'a'`},
		{"get vs x --field-selector metadata.name=x", "--field-selector selects among all objects of a kind: leave it out, or the names"},
		{"get vs --show-labels -o yaml", "--show-labels and -L add columns to a table: leave them out, or -o yaml"},
		{"get vs -L app -o custom-columns=A:.b", "--show-labels and -L add columns to a table: leave them out, or -o custom-columns=A:.b"},
		{"get vs -L a,,b", "-L: a label has no name: give names such as app,version"},
		{"get vs --watch-only --output-watch-events -o custom-columns=A:.b", "--output-watch-events has no place in -o custom-columns=A:.b: use table, wide, yaml or json"},
		{"get all x", "all x: all is every kind: leave the names out"},
		{"get all,vs", `unknown kind "all": see portolan api-resources for those served`},
		{"get vs --frob", "unknown flag: --frob\nSee 'portolan get --help'"},
		{"delete", "name what to delete: KIND NAME, KIND/NAME, or files with -f"},
		{"delete vs", "name the virtualservices to delete, or add --all or -l"},
		{"delete vs --all -l a=b", "--all is every object of the kind, and -l are some: leave one of them out"},
		{"delete vs x --all", "--all, -l and -A select among all objects of a kind: leave them out, or the names"},
		{"delete vs -A", "name the virtualservices to delete, or add --all or -l"},
		{"delete vs --all -A -n shop", "-A is all namespaces, and -n is one: leave one of them out"},
		{"delete vs -l a=b=c", `-l "a=b=c": found '=', expected: ',' or 'end of string'`},
		{"delete -f a.yaml -l a=b", "--all, -l and -A select among the objects of a kind: name one, and leave the files out"},
		{"delete vs --all --dry-run=client", "--dry-run=client: the server alone knows which objects there are: use --dry-run=server"},
		{"delete vs x -f a.yaml", "vs: name objects either by files (-f) or by arguments"},
		{"get vs --server ftp://x", `--server: server "ftp://x" is not a URL such as http://127.0.0.1:15080`},
		{"api-resources x", "unknown command \"x\" for \"portolan api-resources\"\nSee 'portolan api-resources --help'"},
	}
	for _, test := range tests {
		o := do(t, "", strings.Fields(test.line)...)
		clitest.Same(t, test.line, o.Err, "portolan: "+test.says+"\n")
		if o.Code != exit.Usage || o.Out != "" {
			t.Errorf("%s: %+v", test.line, o)
		}
	}
}

func TestAPIResources(t *testing.T) {
	t.Parallel()
	golden.Assert(t, do(t, "", "api-resources").Out, "api-resources.txt")
}

func TestGetOfARevision(t *testing.T) {
	t.Parallel()
	a := startShop(t)
	out := a.Must(t, "", "delete", "vs/reviews", "-n", "shop")
	_, revision, ok := strings.Cut(strings.TrimSpace(out), "rev ")
	if !ok {
		t.Fatalf("delete printed no revision: %s", out)
	}
	if o := a.Do(t, "", "get", "vs/reviews", "-n", "shop", "--min-revision", revision); o.Code != exit.Failure || !strings.Contains(o.Err, "not found") {
		t.Errorf("%d %s", o.Code, o.Err)
	}
	a.Must(t, "", "get", "vs", "-A", "--consistent")
	if o := a.Do(t, "", "get", "vs", "-A", "--min-revision", "99999"); o.Code != exit.Unreachable || !strings.Contains(o.Err, "try again") {
		t.Errorf("%d %s", o.Code, o.Err)
	}
	if o := a.Do(t, "", "get", "vs", "--min-revision", "-1"); o.Code != exit.Usage {
		t.Errorf("%d %s", o.Code, o.Err)
	}
}

// TestServersAreTriedInOrder: of several servers the first that accepts connections is called,
// by a flag and by a context; if none does, the error is about the first.
func TestServersAreTriedInOrder(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	const gone, alsoGone = "http://127.0.0.1:1", "unix:/no/such/socket"
	want := a.Must(t, "", "get", "se", "-n", "shop", "-o", "name")
	for _, servers := range []string{a.URL + "," + gone, gone + "," + a.URL, alsoGone + ", " + gone + ", " + a.URL} {
		if o := do(t, "", "get", "se", "-n", "shop", "-o", "name", "--server", servers); o.Code != exit.OK || o.Out != want {
			t.Errorf("%s: %+v", servers, o)
		}
	}
	if o := do(t, "", "get", "se", "-n", "shop", "--server", gone+","+alsoGone); o.Code != exit.Unreachable || !strings.Contains(o.Err, "cannot reach the server at "+gone) {
		t.Errorf("none: %+v", o)
	}
}
