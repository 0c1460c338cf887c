package objects

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestGetForms: the forms of -o that users write, the order of --sort-by, and the columns of labels.
func TestGetForms(t *testing.T) {
	t.Parallel()
	a := startShop(t)
	a.Must(t, "", "label", "se/ratings", "-n", "shop", "app=ratings", "example.com/tier=back")
	dir := clitest.Write(t, map[string]string{
		"path": "{.items[*].metadata.name}", "template": `{{range .items}}{{.metadata.name}};{{end}}`,
		"columns": "NAME           FIRST-HOST\n.metadata.name {.spec.hosts[0]}\n",
	})
	var all strings.Builder
	for _, args := range [][]string{
		{"se", "-o", `jsonpath={range .items[*]}{.metadata.name}={.spec.hosts[0]}{"\n"}{end}`},
		{"se/ratings", "-o", "jsonpath={.spec.ports[0].number}"},
		{"se", "-o", "jsonpath-as-json={.items[*].spec.hosts}"},
		{"se", "-o", "jsonpath-file=path"},
		{"se/ratings", "-o", `go-template={{.metadata.name}} {{exists . "spec" "ports" 0 "number"}} {{exists . "spec" "nope"}} {{base64decode "aGk="}}`},
		{"se", "-o", "go-template-file=template"},
		{"vs,se", "-o", "custom-columns=KIND:.kind,NAME:metadata.name,HOSTS:{.spec.hosts[*]},NONE:.spec.nope,SECOND:.spec.hosts[1]"},
		{"se", "-o", "custom-columns=NAME:.metadata.name", "--no-headers"},
		{"se", "-o", "custom-columns-file=columns"},
		{"se", "-o", "name", "--sort-by", ".spec.ports[0].number"},
		{"se", "-o", "name", "--sort-by", "{.spec.addresses[0]}"},
		{"vs,se", "-o", "name", "--sort-by", "metadata.resourceVersion"},
		{"se", "-L", "app,example.com/tier"},
		{"se/ratings", "--show-labels", "-L", "app"},
		{"se", "--field-selector", "metadata.name=ratings"},
		{"se", "-o", "name", "--field-selector", "metadata.name!=ratings", "-l", "!app"},
		{"all", "-o", "name"},
		{"vs/nope", "se/ratings", "--ignore-not-found", "-o", "name"},
	} {
		all.WriteString("$ portolan get " + strings.Join(args, " ") + " -n shop\n")
		for i, arg := range args {
			if form, file, ok := strings.Cut(arg, "-file="); ok {
				args[i] = form + "-file=" + filepath.Join(dir, file)
			}
		}
		all.WriteString(aged(a.Must(t, "", append([]string{"get", "-n", "shop"}, args...)...)) + "\n")
	}
	golden.Assert(t, all.String(), "get-forms.txt")
}

func TestGetFormsThatCannotBe(t *testing.T) {
	t.Parallel()
	a := startShop(t)
	empty := filepath.Join(clitest.Write(t, map[string]string{"columns": "NAME HOSTS\n.metadata.name\n"}), "columns")
	for line, want := range map[string]clitest.Outcome{
		"get se -n shop --sort-by .spec.hosts.nope":          {Code: exit.Usage, Err: "portolan: --sort-by .spec.hosts.nope: no object has that\n"},
		"get vs -n shop --sort-by .spec.http":                {Code: exit.Usage, Err: "portolan: --sort-by .spec.http: that is not one value in details: give the path of a text or a number\n"},
		"get se -o custom-columns-file=" + empty:             {Code: exit.Usage, Err: "portolan: -o custom-columns-file=" + empty + ": the first line has 2 headers, and the second 1 path: write a header and a path for each column\n"},
		"get se -o jsonpath-file=absent":                     {Code: exit.Data, Err: "portolan: -o jsonpath-file=absent: no such file or directory\n"},
		"get se --field-selector spec.x=y":                   {Code: exit.Data, Err: `portolan: fieldSelector: "spec.x" is not supported: select by metadata.name or metadata.namespace` + "\n"},
		"get se/nope --ignore-not-found":                     {},
		"get se/nope --ignore-not-found -o json":             {},
		"get se -n nowhere --ignore-not-found":               {},
		"get se -n nowhere --field-selector metadata.name=x": {Err: "No serviceentries with metadata.name=x found in namespace nowhere; -A looks in all.\n"},
		"get all -n nowhere":                                 {Err: "No objects found in namespace nowhere; -A looks in all.\n"},
		"get all -A -l no=no":                                {Err: "No objects with labels no=no found.\n"},
	} {
		if o := a.Do(t, "", strings.Fields(line)...); o != want {
			t.Errorf("%s: %+v", line, o)
		}
	}
}

// TestGetAllThatMayBeListed: kinds that the user may not list are left out, and named; if none is
// left, the refusal is the error.
func TestGetAllThatMayBeListed(t *testing.T) {
	t.Parallel()
	a := startShop(t)
	refusing := func(refused string) string {
		return inFrontOf(t, a, func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, refused) {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"not for you"}`))
			return true
		})
	}
	o := do(t, "", "get", "all", "-n", "shop", "-o", "name", "--server", refusing("gateways"))
	if o.Code != exit.OK || o.Err != "Left out, since you may not list them: gateways\n" || strings.Contains(o.Out, "gateway/") || !strings.Contains(o.Out, "virtualservice/shop/reviews\n") {
		t.Errorf("%+v", o)
	}
	if o := do(t, "", "get", "all", "-n", "shop", "--server", refusing("/apis/")); o.Code != exit.Forbidden || o.Err != "portolan: not for you\n" {
		t.Errorf("%+v", o)
	}
}

// TestGetWatchOnly: with --watch-only what is there first is not shown; columns of the user's have
// one header.
func TestGetWatchOnly(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	only := follow(t, a.URL, "se,gw", "--watch-only", "-o", "custom-columns=NAME:.metadata.name,TEAM:.metadata.labels.team")
	all := follow(t, a.URL, "all", "-o", "go-template={{.metadata.name}} ")
	all.awaitOutput("x ")
	only.err.await(t, only.ctx, "No gateways found")
	a.Must(t, clitest.Entry("b", ", labels: {team: a}"), "apply", "-f", "-")
	only.awaitOutput("b")
	a.Must(t, clitest.Entry("c", ""), "apply", "-f", "-")
	only.awaitOutput("c")
	all.awaitOutput("x b c ")
	clitest.Same(t, "watch", only.out.String(), "NAME  TEAM\nb     a\nc     <none>\n")
	if code := only.stop(); code != exit.OK {
		t.Errorf("exit code %d: %s", code, only.err)
	}
	if code := all.stop(); code != exit.OK || all.err.String() != "" {
		t.Errorf("exit code %d: %s", code, all.err)
	}
}
