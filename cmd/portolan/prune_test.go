package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	mine  = ", namespace: shop, labels: {app: shop}"
	edge  = ", namespace: edge, labels: {app: shop}"
	other = ", namespace: shop, labels: {app: other}"
)

// pruned starts an API with objects, some of which no file will have.
func pruned(t *testing.T) api {
	t.Helper()
	a := startAPI(t)
	a.must(t, strings.Join([]string{
		entry("a", mine), entry("z", mine), entry("b", mine), entry("theirs", other), entry("elsewhere", edge),
		"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s" + mine + "}\nspec: {egress: [{hosts: [./*]}]}\n",
	}, "---\n"), "apply", "-f", "-")
	return a
}

func TestApplyPrunes(t *testing.T) {
	t.Parallel()
	a := pruned(t)
	files := entry("new", mine) + "---\n" + entry("a", mine)
	prune := []string{"apply", "-f", "-", "--prune", "-l", "app=shop"}

	same(t, "dry run", tried(a.must(t, files, append(prune, "--dry-run=server")...)),
		"serviceentry/shop/new  created (dry run)\nserviceentry/shop/a    unchanged (dry run)\n"+
			"serviceentry/shop/b    deleted (dry run)\nserviceentry/shop/z    deleted (dry run)\nsidecar/shop/s         deleted (dry run)\n")
	o := a.do(t, files, "diff", "-f", "-", "--prune", "-l", "app=shop", "--prune-kinds", "se")
	golden.Assert(t, o.out, "diff-prune.txt")
	if o.code != exit.Differences {
		t.Errorf("%+v", o)
	}
	if v := a.Store.Version(); v != "2" {
		t.Fatalf("the store is at %s", v)
	}
	same(t, "of one kind", a.must(t, files, append(prune, "--prune-kinds", "serviceentries,dr")...),
		"serviceentry/shop/new  created    rev 3\nserviceentry/shop/a    unchanged  rev 2\n"+
			"serviceentry/shop/b    deleted    rev 3\nserviceentry/shop/z    deleted    rev 3\n")
	same(t, "of all kinds and one namespace more", a.must(t, entry("a", ", labels: {app: shop}"), append(prune, "-n", "shop")...),
		"serviceentry/shop/a    unchanged  rev 2\nserviceentry/shop/new  deleted    rev 4\nsidecar/shop/s         deleted    rev 4\n")
	same(t, "what is left", a.must(t, "", "get", "se,sidecars", "-A", "-o", "name"),
		"serviceentry/edge/elsewhere\nserviceentry/shop/a\nserviceentry/shop/theirs\n")
}

// between returns a proxy of an API that calls do before each batch.
func between(t *testing.T, a api, do func()) string {
	t.Helper()
	target, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = a.HTTP.Transport
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == batch.Path {
			do()
		}
		r.Host = target.Host
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestPruneDeletesNothingNewer(t *testing.T) {
	t.Parallel()
	a := pruned(t)
	url := between(t, a, func() { a.do(t, entry("z", mine+", annotations: {note: new}"), "apply", "-f", "-") })
	o := do(t, entry("a", mine), "apply", "-f", "-", "--prune", "-l", "app=shop", "--server", url)
	if want := (outcome{exit.Conflict, "", "portolan: nothing was applied: conflict: serviceentry/shop/z changed (you had version 2, the store has 3): " +
		"see portolan diff serviceentry/z -n shop --from 2\n"}); o != want {
		t.Errorf("%+v", o)
	}
}

func TestPruneDoesNotMindWhatIsGoneMeanwhile(t *testing.T) {
	t.Parallel()
	a := pruned(t)
	url := between(t, a, func() {
		_, _ = a.Store.Delete(context.Background(), schema.ServiceEntry, "z", "shop", "") // does nothing the second time
	})
	o := do(t, entry("a", mine), "apply", "-f", "-", "--prune", "-l", "app=shop", "--server", url)
	if want := (outcome{exit.OK, "serviceentry/shop/a  unchanged  rev 2\nserviceentry/shop/b  deleted    rev 4\nsidecar/shop/s       deleted    rev 4\n", ""}); o != want {
		t.Errorf("%+v", o)
	}
}

func TestPruneRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--prune"}, exit.Usage, "--prune needs -l"},
		{[]string{"-l", "app=shop"}, exit.Usage, "say what --prune deletes"},
		{[]string{"--prune", "-l", "app"}, exit.Usage, "-l app: "},
		{[]string{"--prune", "-l", "app!=x"}, exit.Usage, "use key=value"},
		{[]string{"--prune", "-l", "app=shop", "--prune-kinds", "pods"}, exit.Usage, `--prune-kinds: unknown kind "pods"`},
		{[]string{"--prune", "-l", "app=shop", "--dry-run=client"}, exit.Usage, "use --dry-run=server"},
		{[]string{"--prune", "-l", "app=shop"}, exit.Data,
			"nothing was applied: stdin: document 1 (line 1): serviceentry/shop/theirs: metadata.labels: lack app=shop: with --prune every object"},
	} {
		o := do(t, entry("theirs", other), append([]string{"apply", "-f", "-"}, test.args...)...)
		if o.code != test.code || o.out != "" || !strings.Contains(o.err, test.says) {
			t.Errorf("%v: %+v", test.args, o)
		}
	}
}

// TestPruneAsksOnATerminal: prune lists what it would delete and asks. With --yes, in a dry
// run, or with nothing to delete it does not ask.
func TestPruneAsksOnATerminal(t *testing.T) {
	t.Parallel()
	a := pruned(t)
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte(entry("a", mine)), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(answer string, args ...string) outcome {
		var out, stderr strings.Builder
		env := &environment{stdin: strings.NewReader(answer), stdout: &out, stderr: &stderr, schemas: schema.Pilot(), terminal: true}
		root := newRootCommand(env)
		root.SetArgs(append([]string{"apply", "-f", file, "--prune", "-l", "app=shop", "--server", a.URL}, args...))
		err := root.ExecuteContext(t.Context())
		if err != nil {
			stderr.WriteString(err.Error())
		}
		return outcome{exit.Of(err), out.String(), stderr.String()}
	}
	const question = "In no file, and to be deleted:\n  serviceentry/shop/b\n  serviceentry/shop/z\n  sidecar/shop/s\nApply, and delete these 3? [y/N] "
	if o := at("n\n"); o != (outcome{exit.Failure, "", question + "nothing was applied: you did not say yes"}) {
		t.Errorf("no: %+v", o)
	}
	if o := at("n\n", "--dry-run=server"); o.code != exit.OK || strings.Contains(o.err, "delete") {
		t.Errorf("a dry run: %+v", o)
	}
	if v := a.Store.Version(); v != "2" {
		t.Fatalf("the store is at %s", v)
	}
	if o := at("y\n", "--prune-kinds", "sidecars"); o.code != exit.OK || o.err != "In no file, and to be deleted:\n  sidecar/shop/s\nApply, and delete it? [y/N] " {
		t.Errorf("yes: %+v", o)
	}
	if o := at("", "--yes"); o.code != exit.OK || o.err != "" || !strings.Contains(o.out, "serviceentry/shop/z  deleted") {
		t.Errorf("--yes: %+v", o)
	}
	if o := at("n\n"); o.code != exit.OK || o.err != "" {
		t.Errorf("nothing to delete: %+v", o)
	}
}

// TestPruneDeletesWhatWasConfirmedAlone: prune does not delete what was created while it
// asked.
func TestPruneDeletesWhatWasConfirmedAlone(t *testing.T) {
	t.Parallel()
	a, b := config.Key{Kind: schema.ServiceEntry, Namespace: "shop", Name: "a"}, config.Key{Kind: schema.ServiceEntry, Namespace: "shop", Name: "b"}
	p := pruneFlags{confirmed: map[config.Key]bool{a: true}}
	if err := p.answered([]storedOnly{{key: a}}); err != nil {
		t.Error(err)
	}
	if err := p.answered([]storedOnly{{key: a}, {key: b}}); err == nil || !strings.Contains(err.Error(), "serviceentry/shop/b is to be deleted too") {
		t.Error(err)
	}
}
