package objects

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	mine  = ", namespace: shop, labels: {app: shop}"
	edge  = ", namespace: edge, labels: {app: shop}"
	other = ", namespace: shop, labels: {app: other}"
)

// pruned starts an API with objects, some of which no file will have.
func pruned(t *testing.T) clitest.API {
	t.Helper()
	a := startAPI(t)
	a.Must(t, strings.Join([]string{
		clitest.Entry("a", mine), clitest.Entry("z", mine), clitest.Entry("b", mine), clitest.Entry("theirs", other), clitest.Entry("elsewhere", edge),
		"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s" + mine + "}\nspec: {egress: [{hosts: [./*]}]}\n",
	}, "---\n"), "apply", "-f", "-")
	return a
}

func TestApplyPrunes(t *testing.T) {
	t.Parallel()
	a := pruned(t)
	files := clitest.Entry("new", mine) + "---\n" + clitest.Entry("a", mine)
	prune := []string{"apply", "-f", "-", "--prune", "-l", "app=shop"}

	clitest.Same(t, "dry run", tried(a.Must(t, files, append(prune, "--dry-run=server")...)),
		"serviceentry/shop/new  created (dry run)\nserviceentry/shop/a    unchanged (dry run)\n"+
			"serviceentry/shop/b    deleted (dry run)\nserviceentry/shop/z    deleted (dry run)\nsidecar/shop/s         deleted (dry run)\n")
	o := a.Do(t, files, "diff", "-f", "-", "--prune", "-l", "app=shop", "--prune-kinds", "se")
	golden.Assert(t, o.Out, "diff-prune.txt")
	if o.Code != exit.Differences {
		t.Errorf("%+v", o)
	}
	if v := a.Store.Version(); v != "2" {
		t.Fatalf("the store is at %s", v)
	}
	clitest.Same(t, "of one kind", a.Must(t, files, append(prune, "--prune-kinds", "serviceentries,dr")...),
		"serviceentry/shop/new  created    rev 3\nserviceentry/shop/a    unchanged  rev 2\n"+
			"serviceentry/shop/b    deleted    rev 3\nserviceentry/shop/z    deleted    rev 3\n")
	clitest.Same(t, "of all kinds and one namespace more", a.Must(t, clitest.Entry("a", ", labels: {app: shop}"), append(prune, "-n", "shop")...),
		"serviceentry/shop/a    unchanged  rev 2\nserviceentry/shop/new  deleted    rev 4\nsidecar/shop/s         deleted    rev 4\n")
	clitest.Same(t, "what is left", a.Must(t, "", "get", "se,sidecars", "-A", "-o", "name"),
		"serviceentry/edge/elsewhere\nserviceentry/shop/a\nserviceentry/shop/theirs\n")
}

func TestPruneDeletesNothingNewer(t *testing.T) {
	t.Parallel()
	a := pruned(t)
	url := beforeBatches(t, a, func(int) { a.Do(t, clitest.Entry("z", mine+", annotations: {note: new}"), "apply", "-f", "-") })
	o := do(t, clitest.Entry("a", mine), "apply", "-f", "-", "--prune", "-l", "app=shop", "--server", url)
	if want := (clitest.Outcome{Code: exit.Conflict, Err: "portolan: nothing was applied: conflict: serviceentry/shop/z changed (you had version 2, the store has 3): " +
		"see portolan diff serviceentry/z -n shop --from 2\n"}); o != want {
		t.Errorf("%+v", o)
	}
}

func TestPruneDoesNotMindWhatIsGoneMeanwhile(t *testing.T) {
	t.Parallel()
	a := pruned(t)
	url := beforeBatches(t, a, func(int) {
		_, _ = a.Store.Delete(context.Background(), schema.ServiceEntry, "z", "shop", "") // does nothing the second time
	})
	o := do(t, clitest.Entry("a", mine), "apply", "-f", "-", "--prune", "-l", "app=shop", "--server", url)
	if want := (clitest.Outcome{Code: exit.OK, Out: "serviceentry/shop/a  unchanged  rev 2\nserviceentry/shop/b  deleted    rev 4\nsidecar/shop/s       deleted    rev 4\n"}); o != want {
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
		o := do(t, clitest.Entry("theirs", other), append([]string{"apply", "-f", "-"}, test.args...)...)
		if o.Code != test.code || o.Out != "" || !strings.Contains(o.Err, test.says) {
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
	if err := os.WriteFile(file, []byte(clitest.Entry("a", mine)), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(answer string, args ...string) clitest.Outcome {
		return line.DoAs(t, answer, clitest.AtTerminal, append([]string{"apply", "-f", file, "--prune", "-l", "app=shop", "--server", a.URL}, args...)...)
	}
	const question = "In no file, and to be deleted:\n  serviceentry/shop/b\n  serviceentry/shop/z\n  sidecar/shop/s\nApply, and delete these 3? [y/N] "
	if o := at("n\n"); o != (clitest.Outcome{Code: exit.Failure, Err: question + "nothing was applied: you did not say yes"}) {
		t.Errorf("no: %+v", o)
	}
	if o := at("n\n", "--dry-run=server"); o.Code != exit.OK || strings.Contains(o.Err, "delete") {
		t.Errorf("a dry run: %+v", o)
	}
	if v := a.Store.Version(); v != "2" {
		t.Fatalf("the store is at %s", v)
	}
	if o := at("y\n", "--prune-kinds", "sidecars"); o.Code != exit.OK || o.Err != "In no file, and to be deleted:\n  sidecar/shop/s\nApply, and delete it? [y/N] " {
		t.Errorf("yes: %+v", o)
	}
	if o := at("", "--yes"); o.Code != exit.OK || o.Err != "" || !strings.Contains(o.Out, "serviceentry/shop/z  deleted") {
		t.Errorf("--yes: %+v", o)
	}
	if o := at("n\n"); o.Code != exit.OK || o.Err != "" {
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
