package objects

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/config"
)

func TestLabelAndAnnotate(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ", labels: {app: web}")+"---\n"+clitest.Entry("z", ", namespace: zoo"), "apply", "-f", "-")
	for _, step := range []struct{ line, out, err string }{
		{"label se x tier=back team=a -m why", "serviceentry/default/x  configured  rev 3\n", ""},
		{"label se/x tier=back", "serviceentry/default/x  unchanged  rev 3\n", ""},
		{"label se/x se/zoo/z team- tier=front --overwrite", "serviceentry/default/x  configured  rev 4\nserviceentry/zoo/z      configured  rev 4\n", ""},
		{"label se/x --list", "serviceentry/default/x  app=web\nserviceentry/default/x  tier=front\n", ""},
		{"annotate se --all -A example.com/ticket=4711 -o name", "serviceentry/default/x\nserviceentry/zoo/z\n", ""},
		{"annotate se -l app=web -A example.com/ticket- example.com/none- example.com/url=https://x/?a=b", "serviceentry/default/x  configured  rev 6\n", ""},
		{"annotate se -A --all --list", "serviceentry/default/x  example.com/url=https://x/?a=b\nserviceentry/zoo/z      example.com/ticket=4711\n", ""},
		{"label se/x app- tier-", "serviceentry/default/x  configured  rev 7\n", ""},
		{"label se/x --list", "", ""},
		{"label se -l no=no a=b", "", "Nothing was labeled: the store has no such objects.\n"},
		{"label se/x a=b --dry-run=server -o json", "", ""},
		{"get se/x -o jsonpath={.metadata.labels}/{.metadata.resourceVersion}", "/7", ""},
	} {
		o := a.Do(t, "", strings.Fields(step.line)...)
		if o.Code != exit.OK || o.Err != step.err || o.Out != step.out && !strings.Contains(step.line, "-o json") {
			t.Errorf("%s: %+v", step.line, o)
		}
	}
	if out := a.Must(t, "", "history", "se/x"); !strings.Contains(out, "why") {
		t.Errorf("no message: %s", out)
	}
}

func TestPatch(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ", labels: {app: web}")+"---\n"+clitest.Entry("w", ""), "apply", "-f", "-")
	file := filepath.Join(clitest.Write(t, map[string]string{"p.yaml": "spec:\n  exportTo: [.]\nmetadata:\n  labels: {app: null, tier: back}\n"}), "p.yaml")
	clitest.Same(t, "merge", a.Must(t, "", "patch", "se/x", "--patch-file", file, "-m", "why"), "serviceentry/default/x  configured  rev 3\n")
	clitest.Same(t, "merged", a.Must(t, "", "get", "se/x", "-o", "jsonpath={.spec.exportTo}{.metadata.labels}{.spec.hosts}"), `["."]{"tier":"back"}["x.shop"]`)
	clitest.Same(t, "JSON of all", a.Must(t, `[{"op": "test", "path": "/spec/resolution", "value": "STATIC"}, {"op": "add", "path": "/spec/hosts/-", "value": "more.shop"}]`,
		"patch", "se", "--all", "--type=json", "--patch-file", "-"), "serviceentry/default/w  configured  rev 4\nserviceentry/default/x  configured  rev 4\n")
	clitest.Same(t, "nothing", a.Must(t, "", "patch", "se/x", "-p", `{"spec": {"resolution": "STATIC"}}`), "serviceentry/default/x  unchanged  rev 4\n")
	clitest.Same(t, "the right version", a.Must(t, "", "patch", "se/x", "-p", `{"metadata": {"resourceVersion": "4", "labels": {"a": "b"}}}`), "serviceentry/default/x  configured  rev 5\n")
}

// TestRewritesThatAreRefused: one clear error, the exit code that the help documents, and nothing
// changed.
func TestRewritesThatAreRefused(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ", labels: {app: web}")+"---\n"+clitest.Entry("w", ""), "apply", "-f", "-")
	before := a.Store.Version()
	const missing = "serviceentry/default/nope: not found: see those there are with portolan get serviceentries -A"
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"label"}, exit.Usage, "name what to label: KIND/NAME, KIND NAME, or KIND with --all or -l"},
		{[]string{"label", "se/x"}, exit.Usage, "say what to set: KEY=VALUE, or KEY- to remove the label"},
		{[]string{"label", "se", "a=b"}, exit.Usage, "name the serviceentries to label, or add --all or -l"},
		{[]string{"label", "a=b", "se/x"}, exit.Usage, "name what to label: KIND/NAME, KIND NAME, or KIND with --all or -l"},
		{[]string{"label", "se/x", "a=b", "se/w"}, exit.Usage, `nothing was labeled: "se/w": is neither KEY=VALUE nor KEY-: name the objects first`},
		{[]string{"label", "se/x", "a=b", "a-"}, exit.Usage, `nothing was labeled: "a-": a is there twice`},
		{[]string{"label", "se/x", "a=b", "a=b"}, exit.Usage, `nothing was labeled: "a=b": a is there twice`},
		{[]string{"label", "se/x", "=b", "a=-"}, exit.Usage, "nothing was labeled: 3 faults:"},
		{[]string{"label", "se/x", "--all", "a=b"}, exit.Usage, "--all, -l and -A select among all objects of a kind: leave them out, or the names"},
		{[]string{"label", "se/x", "a=b", "--list"}, exit.Usage, "a=b: --list changes nothing: leave one of them out"},
		{[]string{"label", "se/x", "--list", "--overwrite"}, exit.Usage, "--list changes nothing: leave --overwrite out"},
		{[]string{"label", "se/x", "a=b", "--dry-run=client"}, exit.Usage, "--dry-run=client: the server alone knows the objects to change: use --dry-run=server"},
		{[]string{"label", "se/x", "a=b", "--timeout", "1s"}, exit.Usage, "--timeout is for --wait: give both or neither; --request-timeout is how long the change itself may take"},
		{[]string{"label", "se/x", "se/w", "app=other"}, exit.Data, `nothing was labeled: serviceentry/default/x: label app is "web" already: --overwrite replaces it`},
		{[]string{"label", "se/x", "se/nope", "a=b"}, exit.Failure, missing},
		{[]string{"annotate", "se/x", "nope nope=b"}, exit.Usage, `nothing was annotated: "nope nope=b": `},
		{[]string{"annotate", "frobs", "x", "a=b"}, exit.Usage, `unknown kind "frobs": see portolan api-resources for those served`},
		{[]string{"patch", "se/x"}, exit.Usage, "give the patch: -p PATCH, or --patch-file FILE, one of them"},
		{[]string{"patch", "se/x", "-p", "{}", "--patch-file", "x"}, exit.Usage, "give the patch: -p PATCH, or --patch-file FILE, one of them"},
		{[]string{"patch", "se/x", "-p", "{}", "--type=apply"}, exit.Usage, `--type "apply": use merge, json or strategic`},
		{[]string{"patch", "cm/x", "-p", "{}", "--type=strategic"}, exit.Data, "nothing was patched: -p: a strategic patch is an object with the fields to set"},
		{[]string{"patch", "se/x", "-p", "metadata: {labels: {a: b}}", "--type=strategic"}, exit.Data, "nothing was patched: serviceentries take no strategic merge patch: use --type=merge or --type=json"},
		{[]string{"patch", "se/x", "-p", "{}", "--type=strategic"}, exit.Data, "nothing was patched: serviceentries take no strategic merge patch: use --type=merge or --type=json"},
		{[]string{"label", "se/x", "a=b", "-f", "x.yaml"}, exit.Usage, "se/x: name objects either by files (-f) or by arguments"},
		{[]string{"label", "--all", "a=b", "-f", "x.yaml"}, exit.Usage, "--all, -l and -A select among the objects of a kind: name one, and leave the files out"},
		{[]string{"annotate", "a=b", "-f", "absent.yaml"}, exit.Data, "nothing was annotated: -f absent.yaml: no such file or directory"},
		{[]string{"edit", "-f", "absent.yaml"}, exit.Data, "nothing was edited: -f absent.yaml: no such file or directory"},
		{[]string{"patch", "se/x", "--patch-file", "absent"}, exit.Data, "--patch-file absent: no such file or directory"},
		{[]string{"patch", "se/x", "-p", "{"}, exit.Data, "nothing was patched: -p: not valid YAML"},
		{[]string{"patch", "se/x", "-p", "[]"}, exit.Data, "nothing was patched: -p: a merge patch is an object with the fields to set"},
		{[]string{"patch", "se/x", "--type=json", "-p", "{a: b}"}, exit.Data, "nothing was patched: -p: a JSON patch is a list of operations"},
		{[]string{"patch", "se/x", "--type=json", "-p", "[{op: remove}]"}, exit.Data, "nothing was patched: -p: operation 1 has no op and path"},
		{[]string{"patch", "se/x", "--type=json", "-p", "[{op: test, path: /spec/resolution, value: DNS}]"}, exit.Data, "nothing was patched: serviceentry/default/x: testing value /spec/resolution failed"},
		{[]string{"patch", "se/x", "--type=json", "-p", "[{op: remove, path: /spec/nope}]"}, exit.Data, "nothing was patched: serviceentry/default/x: "},
		{[]string{"patch", "se/x", "-p", "metadata: {name: other}"}, exit.Data, `nothing was patched: serviceentry/default/x: metadata.name cannot become "other": it stays "x"`},
		{[]string{"patch", "se/x", "-p", "kind: null"}, exit.Data, "nothing was patched: serviceentry/default/x: is no object any more: "},
		{[]string{"patch", "se/x", "-p", "spec: {hots: [a]}"}, exit.Data, "nothing was patched: serviceentry/default/x: spec.hots: unknown field: did you mean hosts?"},
		{[]string{"patch", "se", "--all", "-p", "spec: {resolution: NOPE}"}, exit.Data, "nothing was patched: 2 faults:\n  serviceentry/default/w: spec.resolution: "},
		{[]string{"patch", "se/x", "-p", `{metadata: {resourceVersion: "1", labels: {a: b}}}`}, exit.Conflict, "nothing was patched: conflict: serviceentry/default/x changed (you had version 1, the store has 2)"},
	} {
		o := a.Do(t, "", test.args...)
		if o.Code != test.code || o.Out != "" || !strings.HasPrefix(o.Err, "portolan: "+test.says) {
			t.Errorf("%q: %+v", test.args, o)
		}
		if v := a.Store.Version(); v != before {
			t.Fatalf("%q: the store went from %s to %s", test.args, before, v)
		}
	}
}

// TestRewriteAgainstOthers: a change that meets another reads the object anew, and gives up when it
// meets one each time.
func TestRewriteAgainstOthers(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	other := func(upTo int) string {
		return beforeBatches(t, a, func(n int) {
			if n <= upTo {
				a.Must(t, clitest.Entry("x", fmt.Sprintf(`, labels: {other: "%d-%d"}`, upTo, n)), "apply", "-f", "-")
			}
		})
	}
	if o := line.Do(t, "", "label", "se/x", "mine=yes", "--server", other(2)); o.Code != exit.OK || o.Err != "" {
		t.Errorf("two others: %+v", o)
	}
	clitest.Same(t, "both", a.Must(t, "", "label", "se/x", "--list"), "serviceentry/default/x  mine=yes\nserviceentry/default/x  other=2-2\n")
	o := line.Do(t, "", "patch", "se/x", "-p", "metadata: {labels: {late: yes}}", "--server", a.URL)
	if o.Code != exit.Data {
		t.Errorf("a label that is no text: %+v", o)
	}
	o = line.Do(t, "", "patch", "se/x", "-p", "metadata: {labels: {late: 'yes'}}", "--server", other(1000))
	if o.Code != exit.Conflict || !strings.Contains(o.Err, "conflict: serviceentry/default/x changed") {
		t.Errorf("always another: %+v", o)
	}
	clitest.Same(t, "the other's", a.Must(t, "", "label", "se/x", "--list"), "serviceentry/default/x  other=1000-5\n")
}

func TestCreateAndReplace(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	two := clitest.Entry("x", "") + "---\n" + clitest.Entry("w", "")
	for _, step := range []struct {
		stdin, line string
		want        clitest.Outcome
	}{
		{two, "replace -f -", clitest.Outcome{Code: exit.Failure, Err: "portolan: nothing was replaced: 2 faults:\n  stdin: document 1 (line 1): update serviceentry/default/x: not found\n  stdin: document 2 (line 11): update serviceentry/default/w: not found\n"}},
		{two, "create -f - --dry-run=client", clitest.Outcome{Out: "serviceentry/default/x  valid (dry run)\nserviceentry/default/w  valid (dry run)\n"}},
		{clitest.Entry("x", ""), "create -f - -m why", clitest.Outcome{Out: "serviceentry/default/x  created  rev 2\n"}},
		{two, "create -f -", clitest.Outcome{Code: exit.Failure, Err: "portolan: nothing was created: stdin: document 1 (line 1): create serviceentry/default/x: already exists\n"}},
		{clitest.Entry("x", ", labels: {a: b}"), "replace -f -", clitest.Outcome{Out: "serviceentry/default/x  configured  rev 3\n"}},
		{clitest.Entry("x", `, resourceVersion: "2"`), "replace -f -", clitest.Outcome{Code: exit.Conflict, Err: "portolan: nothing was replaced: stdin: document 1 (line 1): conflict: serviceentry/default/x changed (you had version 2, the store has 3): see portolan diff serviceentry/x -n default --from 2\n"}},
		{"", "create", clitest.Outcome{Code: exit.Usage, Err: "portolan: name what to create: -f FILE, -f DIR, -f URL, -k DIR, or -f - for stdin\n"}},
		{"", "replace", clitest.Outcome{Code: exit.Usage, Err: "portolan: name what to replace: -f FILE, -f DIR, -f URL, -k DIR, or -f - for stdin\n"}},
		{"", "create secret tls x", clitest.Outcome{Code: exit.Usage, Err: "portolan: create secret: portolan secret tls and portolan secret generic make a Secret of files\nSee 'portolan create --help'\n"}},
		{"", "replace x.yaml", clitest.Outcome{Code: exit.Usage, Err: "portolan: x.yaml: name files with -f\nSee 'portolan replace --help'\n"}},
	} {
		if o := a.Do(t, step.stdin, strings.Fields(step.line)...); o != step.want {
			t.Errorf("%s: %+v", step.line, o)
		}
	}
}

func TestDeleteAmong(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	for _, name := range []string{"a", "b", "c"} {
		a.Must(t, clitest.Entry(name, ", labels: {app: "+name+"}")+"---\n"+clitest.Entry(name, ", namespace: zoo"), "apply", "-f", "-")
	}
	o := line.DoAs(t, "n\n", clitest.AtTerminal, "delete", "se", "--all", "--server", a.URL)
	if o.Code != exit.Failure || !strings.HasPrefix(o.Err, "To be deleted:\n  serviceentry/default/a\n  serviceentry/default/b\n  serviceentry/default/c\nDelete these 3? [y/N] ") {
		t.Errorf("no: %+v", o)
	}
	clitest.Same(t, "dry run", a.Must(t, "", "delete", "se", "-l", "app in (a, b)", "--dry-run=server", "-o", "name"), "serviceentry/default/a\nserviceentry/default/b\n")
	clitest.Same(t, "-l", a.Must(t, "", "delete", "se", "-l", "app=a"), "serviceentry/default/a  deleted  rev 5\n")
	o = line.DoAs(t, "y\n", clitest.AtTerminal, "delete", "se", "--all", "--server", a.URL)
	if o.Code != exit.OK || !strings.Contains(o.Out, "serviceentry/default/c  deleted  rev 6\n") {
		t.Errorf("yes: %+v", o)
	}
	if o := a.Do(t, "", "delete", "se", "--all"); o != (clitest.Outcome{Err: "Nothing was deleted: the store has no such objects.\n"}) {
		t.Errorf("none: %+v", o)
	}
	changed := beforeBatches(t, a, func(n int) {
		if n == 1 {
			a.Must(t, clitest.Entry("b", ", namespace: zoo, labels: {new: one}"), "apply", "-f", "-")
		}
	})
	if o := line.DoAs(t, "", func(*cli.Environment) {}, "delete", "se", "--all", "-A", "--yes", "--server", changed); o.Code != exit.Conflict || o.Out != "" {
		t.Errorf("a change meanwhile: %+v", o)
	}
	clitest.Same(t, "all", a.Must(t, "", "delete", "all", "--all", "-A", "-o", "name"), "serviceentry/zoo/a\nserviceentry/zoo/b\nserviceentry/zoo/c\n")
}

// TestRewriteSecrets: labels of a secret, by label and by an editor, leave its sealed data as it is.
func TestRewriteSecrets(t *testing.T) {
	a := startAPI(t)
	file := filepath.Join(clitest.Write(t, map[string]string{"ca.pem": "hidden"}), "ca.pem")
	a.Must(t, "", "secret", "generic", "clients", "-n", "shop", "--from-file", "note="+file)
	sealed := func() string {
		return a.Must(t, "", "get", "secret/clients", "-n", "shop", "-o", "jsonpath={.sealed}{.type}")
	}
	before := sealed()
	if !strings.Contains(before, "note") {
		t.Fatalf("sealed: %s", before)
	}
	clitest.Same(t, "label", a.Must(t, "", "label", "secret/clients", "-n", "shop", "a=b"), "secret/shop/clients  configured  rev 3\n")
	editors(t, "s/a: b/a: c/")
	clitest.Same(t, "edit", a.Must(t, "", "edit", "secret/clients", "-n", "shop"), "secret/shop/clients  configured  rev 4\n")
	clitest.Same(t, "patch", a.Must(t, "", "patch", "secret/clients", "-n", "shop", "-p", "metadata: {labels: {d: e}}"), "secret/shop/clients  configured  rev 5\n")
	clitest.Same(t, "the data", sealed(), before)
	clitest.Same(t, "the labels", a.Must(t, "", "label", "secret/clients", "-n", "shop", "--list"), "secret/shop/clients  a=c\nsecret/shop/clients  d=e\n")
}

// TestAllIsListedOnce: without objects of other sources none of the store is hidden, so one list has them all.
func TestAllIsListedOnce(t *testing.T) {
	t.Parallel()
	const list = `{"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntryList", "metadata": {"resourceVersion": "7"}, "items": [
		{"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": "x", "namespace": "default", "annotations": {%q: %q}}, "spec": {"hosts": ["x.shop"]}}]}`
	for name, test := range map[string]struct {
		args   []string
		source string
		lists  int32
	}{
		"all":                     {[]string{"--all"}, "", 1},
		"all, with other sources": {[]string{"--all"}, "kube://east", 2},
		"some":                    {[]string{"-l", "app=web"}, "", 2}, // a hidden one may have the label
	} {
		var lists atomic.Int32
		o, err := serving(t, func(r *http.Request) any { // which does not answer the write
			if r.Method == http.MethodGet {
				lists.Add(1)
			}
			return fmt.Sprintf(list, config.SourceAnnotation, test.source)
		}, append([]string{"label", "se", "app=web"}, test.args...)...)
		if lists.Load() != test.lists {
			t.Errorf("%s: %d lists, want %d: %+v %v", name, lists.Load(), test.lists, o, err)
		}
	}
}
