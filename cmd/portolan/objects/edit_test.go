package objects

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// editors makes an editor that runs a script of sed the first time that it is opened, another the
// second time, and so on; then it changes nothing. It keeps what it was opened with, in files 1, 2
// and so on of the directory that it returns.
func editors(t *testing.T, scripts ...string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"editor": `#!/bin/sh
n=$(($(cat "$0.count" 2>/dev/null || echo 0) + 1))
echo $n > "$0.count"
cp "$1" "${0%editor}$n"
if [ -f "$0.$n" ]; then sed -f "$0.$n" "$1" > "$0.out" && cat "$0.out" > "$1"; fi
`}
	for i, script := range scripts {
		files[fmt.Sprintf("editor.%d", i+1)] = script + "\n"
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	t.Setenv("PORTOLAN_EDITOR", filepath.Join(dir, "editor"))
	t.Setenv("EDITOR", "false")
	return dir
}

func openedWith(t *testing.T, dir string, n int) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(n)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// keptIn matches the file that an edit leaves.
var keptIn = regexp.MustCompile(`\nWhat you have typed is in (\S+)\n`)

const two = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: x, namespace: shop, labels: {app: web}}\nspec: {hosts: [x.shop], http: [{name: all, timeout: 1s, directResponse: {status: 404}}]}\n---\n"

func startEdited(t *testing.T) clitest.API {
	t.Helper()
	a := startAPI(t)
	a.Must(t, two+clitest.Entry("x", ", namespace: shop"), "apply", "-f", "-")
	return a
}

func TestEdit(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	a := startEdited(t)
	for _, test := range []struct {
		name, script string
		args         []string
		want         clitest.Outcome
	}{
		{"unchanged", "", nil, clitest.Outcome{Err: "Edit cancelled, nothing changed.\n"}},
		{"empty", "d", nil, clitest.Outcome{Err: "Edit cancelled, nothing changed.\n"}},
		{"comments alone", "/^[^#]/d", nil, clitest.Outcome{Err: "Edit cancelled, nothing changed.\n"}},
		{"the same, written otherwise", "s/^kind: /kind:    /", nil, clitest.Outcome{Err: "Edit cancelled, nothing changed.\n"}},
		{"a dry run", "s/x.shop/y.shop/", []string{"--dry-run=server"}, clitest.Outcome{Out: "virtualservice/shop/x  configured (dry run)\nserviceentry/shop/x    configured (dry run)\n"}},
		{"one of two", "s/timeout: 1s/timeout: 2s/", []string{"-m", "slower"}, clitest.Outcome{Out: "virtualservice/shop/x  configured  rev 3\n"}},
		{"both as one change", "s/x.shop/y.shop/", nil, clitest.Outcome{Out: "virtualservice/shop/x  configured  rev 4\nserviceentry/shop/x    configured  rev 4\n"}},
		{"one removed", "/kind: VirtualService/,/---/d;s/y.shop/z.shop/;/^apiVersion: networking.istio.io.v1$/{x;s/^/x/;/^x$/{x;d};x}", nil, clitest.Outcome{Out: "serviceentry/shop/x  configured  rev 5\n"}},
	} {
		editors(t, test.script)
		o := a.Do(t, "", append([]string{"edit", "vs/x", "se/x", "-n", "shop"}, test.args...)...)
		if test.name == "a dry run" {
			o.Out, _, _ = strings.Cut(o.Out, "\n\n")
			o.Out = regexp.MustCompile(`(?m)^(virtualservice|serviceentry)\S+ +\S+ \(dry run\)$`).FindString(o.Out)
			test.want.Out = "virtualservice/shop/x  configured (dry run)"
		}
		if o != test.want {
			t.Errorf("%s: %+v", test.name, o)
		}
	}
	if out := a.Must(t, "", "history", "vs/x", "-n", "shop"); !strings.Contains(out, "slower") {
		t.Errorf("no message: %s", out)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "portolan-edit-*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
}

// TestEditAgain: after a fault of the text or of the server the editor opens again with what was
// typed and the fault above it, which names lines of that file; closed unchanged, it gives up and
// keeps the text.
func TestEditAgain(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	a := startEdited(t)
	dir := editors(t,
		"s/hosts:/hots:/\ns/timeout: 1s/timeout: never/", // two faults of reading
		"s/hots:/hosts:/\ns/timeout: never/timeout: 3s/\ns/name: x$/name: other/",
		"s/name: other/name: x/", // the server refuses
		"s/3s/4s/")
	var refused atomic.Bool
	url := inFrontOf(t, a, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || refused.Swap(true) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"no","details":{"causes":[{"reason":"FieldValueInvalid","message":"is too short for this server","field":"operations[0].object.spec.http[0].timeout"}]}}`))
		return true
	})
	o := do(t, "", "edit", "vs/x", "-n", "shop", "--server", url)
	if want := (clitest.Outcome{Out: "virtualservice/shop/x  configured  rev 3\n"}); o != want {
		t.Errorf("%+v", o)
	}
	var all strings.Builder
	for n := 1; n <= 4; n++ {
		fmt.Fprintf(&all, "$ editor   # opening %d\n%s\n", n, openedWith(t, dir, n))
	}
	golden.Assert(t, all.String(), "edit-again.txt")

	before := a.Store.Version()
	editors(t, "s/hosts:/hots:/")
	o = a.Do(t, "", "edit", "vs/x", "-n", "shop")
	kept := keptIn.FindStringSubmatch(o.Err)
	if o.Code != exit.Data || kept == nil || !strings.HasPrefix(o.Err, "portolan: nothing was edited: document 1 (line 5): virtualservice/shop/x: spec.hots: unknown field: did you mean hosts?\n") {
		t.Fatalf("%+v", o)
	}
	if text, err := os.ReadFile(kept[1]); err != nil || !strings.Contains(string(text), "  hots:\n") {
		t.Errorf("%s: %v", text, err)
	}
	if err := os.Remove(kept[1]); err != nil {
		t.Error(err)
	}
	typing := make([]string, 20)
	for i := range typing {
		typing[i] = "s/hosts:/hots:/\ns/timeout: .*/timeout: 1" + fmt.Sprint(i) + "s/"
	}
	dir = editors(t, typing...)
	if o := a.Do(t, "", "edit", "vs/x", "-n", "shop"); o.Code != exit.Data || !keptIn.MatchString(o.Err) {
		t.Errorf("a script that never ends: %+v", o)
	}
	if _, err := os.Stat(filepath.Join(dir, fmt.Sprint(editTries+1))); err == nil {
		t.Errorf("the editor opened more than %d times", editTries)
	}
	if v := a.Store.Version(); v != before {
		t.Errorf("the store went from %s to %s", before, v)
	}
}

// TestEditAgainstOthers: changes of others are merged field by field, and what both have changed is
// marked; the user sees it before it is written.
func TestEditAgainstOthers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	a := startEdited(t)
	others := func(patches ...string) string {
		return beforeBatches(t, a, func(n int) {
			if n <= len(patches) {
				a.Must(t, "", "patch", "vs/x", "-n", "shop", "-p", patches[n-1])
			}
		})
	}
	var all strings.Builder
	edit := func(url string, openings int, scripts ...string) clitest.Outcome {
		dir := editors(t, scripts...)
		o := do(t, "", "edit", "vs/x", "-n", "shop", "--server", url)
		for n := 2; n <= openings; n++ {
			fmt.Fprintf(&all, "$ editor   # opening %d\n%s\n", n, openedWith(t, dir, n))
		}
		return o
	}
	if o := edit(others("metadata: {labels: {other: one}}"), 2, "s/timeout: 1s/timeout: 2s/"); o != (clitest.Outcome{Out: "virtualservice/shop/x  configured  rev 4\n"}) {
		t.Errorf("another field: %+v", o)
	}
	if o := edit(others("spec: {http: [{name: all, timeout: 9s, directResponse: {status: 404}}]}"), 3,
		"s/timeout: 2s/timeout: 3s/"); o.Code != exit.Data || !keptIn.MatchString(o.Err) {
		t.Errorf("marks that stay: %+v", o)
	}
	if o := edit(others("spec: {http: [{name: all, timeout: 8s, directResponse: {status: 404}}]}"), 2,
		"s/timeout: 9s/timeout: 3s/", "/^<<<<<<</d\n/^|||||||/,/^>>>>>>>/d"); o != (clitest.Outcome{Out: "virtualservice/shop/x  configured  rev 7\n"}) {
		t.Errorf("resolved: %+v", o)
	}
	clitest.Same(t, "what is stored", a.Must(t, "", "get", "vs/x", "-n", "shop", "-o", "jsonpath={.spec.http[0].timeout} {.metadata.labels}"), `3s {"app":"web","other":"one"}`)
	if o := edit(others("metadata: {labels: {other: two}}"), 2, "s/timeout: 3s/timeout: 4s/", "d"); o != (clitest.Outcome{Err: "Edit cancelled, nothing changed.\n"}) {
		t.Errorf("given up: %+v", o)
	}
	gone := beforeBatches(t, a, func(int) { a.Do(t, "", "delete", "vs/x", "-n", "shop", "--yes") })
	if o := edit(gone, 1, "s/timeout: 3s/timeout: 4s/"); o.Code != exit.Failure || !strings.Contains(o.Err, "not found") || !keptIn.MatchString(o.Err) {
		t.Errorf("gone: %+v", o)
	}
	golden.Assert(t, all.String(), "edit-merged.txt")
}

// TestEditArguments: wrong arguments and editors give one clear error, and change nothing.
func TestEditArguments(t *testing.T) {
	a := startEdited(t)
	before := a.Store.Version()
	editors(t, "s/x.shop/y.shop/")
	for _, test := range []struct {
		line, editor string
		code         int
		says         string
	}{
		{"edit", "", exit.Usage, "name what to edit: KIND/NAME, KIND NAME, or KIND with --all or -l"},
		{"edit vs", "", exit.Usage, "name the virtualservices to edit, or add --all or -l"},
		{"edit vs/x --all", "", exit.Usage, "--all, -l and -A select among all objects of a kind: leave them out, or the names"},
		{"edit frobs/x", "", exit.Usage, `unknown kind "frobs": see portolan api-resources for those served`},
		{"edit vs/x --dry-run=client", "", exit.Usage, "--dry-run=client: the server alone knows the objects to change: use --dry-run=server"},
		{"edit vs/x -o frob", "", exit.Usage, `-o "frob": use table, json, yaml or name`},
		{"edit vs/nope se/nope -n shop", "", exit.Failure, "2 faults:\n  virtualservice/shop/nope: not found: "},
		{"edit vs/x -n shop", "/no/such/editor", exit.Failure, `nothing was edited: the editor "/no/such/editor" failed: exit status 127 (PORTOLAN_EDITOR, VISUAL or EDITOR say which one to use)`},
		{"edit vs/x -n shop", "exit 3; #", exit.Failure, `nothing was edited: the editor "exit 3; #" failed: exit status 3`},
	} {
		if test.editor != "" {
			t.Setenv("PORTOLAN_EDITOR", test.editor)
		}
		o := a.Do(t, "", strings.Fields(test.line)...)
		if said := strings.TrimSuffix(o.Err, "\n"); o.Code != test.code || o.Out != "" || !strings.Contains(said, "portolan: "+test.says) || keptIn.MatchString(o.Err) {
			t.Errorf("%s: %+v", test.line, o)
		}
	}
	if v := a.Store.Version(); v != before {
		t.Errorf("the store went from %s to %s", before, v)
	}
}
