package objects

import (
	"context"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

func TestRollbackOfAnObject(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	clitest.Same(t, "dry run", tried(a.Must(t, "", "rollback", "se/a", "-n", "shop", "--to-revision", "2", "--dry-run=server")),
		"serviceentry/shop/a  configured (dry run)\n")
	if v := a.Store.Version(); v != "6" {
		t.Fatalf("the store is at %s", v)
	}
	clitest.Same(t, "changed", a.Must(t, "", "rollback", "se", "a", "-n", "shop", "--to-revision", "2"), "serviceentry/shop/a  configured  rev 7\n")
	clitest.Same(t, "deleted, and changed", a.Must(t, "", "rollback", "se/shop/b", "se/shop/a", "--to-revision", "3", "-m", "oops"),
		"serviceentry/shop/a  configured  rev 8\nserviceentry/shop/b  created     rev 8\n")
	clitest.Same(t, "created, tried", tried(a.Must(t, "", "rollback", "se/x", "-n", "edge", "--to-revision", "3", "--dry-run=server")),
		"serviceentry/edge/x  deleted (dry run)  it did not exist at revision 3\n")
	clitest.Same(t, "created", a.Must(t, "", "rollback", "se/x", "-n", "edge", "--to-revision", "3"), "serviceentry/edge/x  deleted  rev 9  it did not exist at revision 3\n")
	clitest.Same(t, "messages", squeezed(a.Must(t, "", "audit", "--limit", "3")), `REV WHEN WHO FROM CHANGES MESSAGE
9 now local rollback (anna) serviceentry/edge/x deleted rollback to revision 3
8 now local rollback (anna) 2 objects: 1 created, 1 configured oops
7 now local rollback (anna) serviceentry/shop/a configured rollback to revision 2
`)
	o := a.Do(t, "", "rollback", "se/a", "-n", "shop", "--to-revision", "3")
	if want := (clitest.Outcome{Code: exit.OK, Err: "Nothing to do: serviceentry/shop/a is as it was at revision 3.\n"}); o != want {
		t.Errorf("%+v", o)
	}
	if v := a.Store.Version(); v != "9" {
		t.Errorf("the store is at %s", v)
	}
}

// TestRollbackOfTheLastChange: without a revision one object goes back to before its last
// change, and what that does is shown first.
func TestRollbackOfTheLastChange(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	last := strings.Fields(strings.Split(a.Must(t, "", "history", "se/a", "-n", "shop"), "\n")[1])[0]
	before := a.Must(t, "", "get", "se/a", "-n", "shop", "-o", "yaml")
	o := a.Do(t, "", "rollback", "se/a", "-n", "shop")
	if o.Code != exit.OK || !strings.Contains(o.Out, "serviceentry/shop/a  configured  rev 7") || !strings.Contains(o.Err, "configured (dry run)") || !strings.Contains(o.Err, "\n-") {
		t.Errorf("%+v", o)
	}
	if after := a.Must(t, "", "diff", "se/a", "-n", "shop", "--from", parseRevision(t, last)); after != "" {
		t.Errorf("it is not as it was before revision %s:\n%s", last, after)
	}
	a.Must(t, "", "rollback", "se/a", "-n", "shop", "--yes") // undoes the rollback
	if again := a.Must(t, "", "get", "se/a", "-n", "shop", "-o", "yaml"); specText(again) != specText(before) {
		t.Errorf("undone, it is %s, want %s", again, before)
	}
	if o := a.Do(t, "", "rollback", "se/a", "se/b", "-n", "shop"); o.Code != exit.Usage || !strings.Contains(o.Err, "--to-revision is missing") {
		t.Errorf("%+v", o)
	}
}

// parseRevision returns the revision before one, as text.
func parseRevision(t *testing.T, text string) string {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(n - 1)
}

// specText returns the part of a document from its spec on.
func specText(document string) string {
	_, spec, _ := strings.Cut(document, "\nspec:")
	return spec
}

func TestRollbackOfANamespaceAndOfAll(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	clitest.Same(t, "a namespace", a.Must(t, "", "rollback", "-n", "shop", "--to-revision", "2", "--yes"),
		"serviceentry/shop/a  configured  rev 7\nserviceentry/shop/b  created     rev 7\n")
	clitest.Same(t, "the store", a.Must(t, "", "rollback", "-A", "--to-revision", "3", "--yes"),
		"serviceentry/edge/x  deleted     rev 8  it did not exist at revision 3\nserviceentry/shop/a  configured  rev 8\n")
	for _, revision := range []string{"3", "8"} {
		clitest.Same(t, "is what it was at "+revision, a.Must(t, "", "diff", "-A", "--from", revision), "")
	}
	clitest.Same(t, "a kind", a.Must(t, "", "rollback", "se", "-A", "--to-revision", "1", "--yes"), "serviceentry/shop/a  deleted  rev 9  it did not exist at revision 1\nserviceentry/shop/b  deleted  rev 9  it did not exist at revision 1\n")
}

// TestRollbackKeepsAges: a restored object keeps its creation time, since the oldest of
// conflicting objects wins.
func TestRollbackKeepsAges(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	documents, err := config.Decode("", []byte(clitest.Entry("a", ", namespace: shop")), a.Store.Schemas().Type)
	if err != nil {
		t.Fatal(err)
	}
	object := documents[0].Config
	object.CreationTimestamp = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	if _, _, err := a.Store.Apply(t.Context(), []storage.Op{{Verb: storage.Restore, Config: object}}); err != nil {
		t.Fatal(err)
	}
	a.Must(t, "", "delete", "se/a", "-n", "shop")
	a.Must(t, "", "rollback", "se/a", "-n", "shop", "--to-revision", "2")
	got, err := a.Store.Get(t.Context(), object.GroupVersionKind, "a", "shop")
	if err != nil || !got.CreationTimestamp.Equal(object.CreationTimestamp) {
		t.Errorf("it is of %v, %v", got, err)
	}
}

func TestRollbackOverwritesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meanwhile func(a clitest.API)
		args      string
		says      string
	}{
		"a change": {
			func(a clitest.API) { a.Must(t, entryAt("a", "10.9.9.9"), "apply", "-f", "-") }, "se/a -n shop --to-revision 2",
			"conflict: serviceentry/shop/a changed (you had version 6, the store has 7): see portolan diff serviceentry/a -n shop --from 6\n",
		},
		"a creation": {
			func(a clitest.API) { a.Must(t, entryAt("b", "10.9.9.9"), "apply", "-f", "-") }, "-n shop --to-revision 2 --yes",
			"conflict: serviceentry/shop/b exists (you had version 0, which is none, the store has 7): see portolan history serviceentry/b -n shop\n",
		},
		"a change of what would be deleted": {
			func(a clitest.API) {
				a.Must(t, clitest.Entry("x", ", namespace: edge, labels: {a: b}"), "apply", "-f", "-")
			}, "-A --to-revision 3 --yes",
			"conflict: serviceentry/edge/x changed (you had version 4, the store has 7): see portolan diff serviceentry/x -n edge --from 4\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := voyage(t)
			url := beforeBatches(t, a, func(int) { test.meanwhile(a) })
			o := do(t, "", append(strings.Fields("rollback "+test.args), "--server", url)...)
			if o.Code != exit.Conflict || o.Out != "" || o.Err != "portolan: nothing was rolled back: "+test.says {
				t.Errorf("%+v", o)
			}
			if v := a.Store.Version(); v != "7" {
				t.Errorf("the store is at %s", v)
			}
		})
	}
}

// forgotten is a history whose old states are gone.
type forgotten struct{ rest.History }

func (forgotten) At(context.Context, string, storage.Selection) ([]*config.Config, error) {
	return nil, storage.ErrCompacted
}

func TestRollbackErrors(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"--to-revision 2", exit.Usage, "name what to roll back"},
		{"-A", exit.Usage, "--to-revision is missing"},
		{"-A --to-revision -2", exit.Usage, "--to-revision -2"},
		{"-A -n shop --to-revision 2", exit.Usage, "leave one of them out"},
		{"-A --to-revision 2 --dry-run=client", exit.Usage, "use --dry-run=server"},
		{"-A --to-revision 2 --dry-run=x", exit.Usage, "--dry-run"},
		{"teapot/a --to-revision 2", exit.Usage, "unknown kind"},
		{"se/a -A --to-revision 2", exit.Usage, "name it with -n instead of -A"},
		{"se/typo se/shop/a --to-revision 2", exit.Failure, "serviceentry/default/typo: there was none at revision 2, and none at 6: see when there was with portolan history serviceentry/default/typo\n"},
		{"-A --to-revision 2", exit.Usage, "nothing was rolled back: the whole store may be many objects, and there is no terminal to ask on: add --yes"},
		{"-n shop --to-revision 2", exit.Usage, "nothing was rolled back: namespace shop may be many objects"},
		{"se -n shop --to-revision 2", exit.Usage, "add --yes"},
		{"-n shpo --to-revision 2 --yes", exit.Failure, "nothing was rolled back: namespace shpo has no objects now and had none at revision 2, secrets, users and tokens apart: is the name right?"},
		{"-A --to-revision 7 --yes", exit.Data, "nothing was rolled back: revision 7 is in the future: the store is at 6"},
	} {
		o := a.Do(t, "", append([]string{"rollback"}, strings.Fields(test.args)...)...)
		if o.Code != test.code || !strings.Contains(o.Err, test.says) || o.Out != "" {
			t.Errorf("%s: %+v", test.args, o)
		}
	}
	b := line.On(resttest.Start(t, 1, func(o *rest.Options) { o.History = forgotten{o.History} }))
	b.Must(t, clitest.Entry("a", ""), "apply", "-f", "-")
	b.Must(t, "", "delete", "se/a")
	o := b.Do(t, "", "rollback", "-A", "--to-revision", "2", "--yes")
	if o.Code != exit.Data || !strings.HasPrefix(o.Err, "portolan: nothing was rolled back: revision 2 is not known any more: ") {
		t.Errorf("%+v", o)
	}
}

func TestRollbackThatIsTooLarge(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Store, o.Cache, o.History = smallStore{o.Store}, a.Cache, a.Store })
	o := do(t, "", "rollback", "-A", "--to-revision", "2", "--yes", "--server", s.URL)
	if o.Code != exit.Data || o.Out != "" || !strings.HasPrefix(o.Err, "portolan: nothing was rolled back: ") || !strings.HasSuffix(o.Err, ": roll back one namespace or one object after the other\n") {
		t.Errorf("%+v", o)
	}
}

// smallStore is a store that refuses batches.
type smallStore struct{ rest.Store }

func (smallStore) Apply(context.Context, []storage.Op) (string, []storage.Result, error) {
	return "", nil, storage.ErrTooLarge
}

// Version is later than the version of the cache.
func (smallStore) Version() string { return "6" }

// waiting is a user who never answers.
type waiting struct{ until context.Context }

func (w waiting) Read([]byte) (int, error) {
	<-w.until.Done()
	return 0, io.EOF
}

func TestRollbackAsksOnATerminal(t *testing.T) {
	t.Parallel()
	a := voyage(t)
	ask := func(answer string, args ...string) clitest.Outcome {
		return line.DoAs(t, answer, clitest.AtTerminal, append([]string{"rollback", "--server", a.URL}, args...)...)
	}
	const question = "Roll namespace shop back to revision 2? 2 objects: 1 created, 1 configured. [y/N] "
	for _, no := range []string{"", "n\n", "\n", "yeah\n"} {
		if o := ask(no, "-n", "shop", "--to-revision", "2"); o != (clitest.Outcome{Code: exit.Failure, Err: question + "nothing was rolled back: you did not say yes"}) {
			t.Errorf("%q: %+v", no, o)
		}
	}
	if v := a.Store.Version(); v != "6" {
		t.Fatalf("the store is at %s", v)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if text, err := (&environment{&cli.Environment{Stdin: waiting{t.Context()}, Stderr: io.Discard}}).Ask(gone); text != "" || err == nil || err.Error() != "interrupted" {
		t.Errorf("who goes away: %q, %v", text, err)
	}
	if o := ask("", "-n", "shop", "--to-revision", "2", "--dry-run=server"); o.Code != exit.OK || o.Err != "" {
		t.Errorf("dry run: %+v", o)
	}
	if o := ask("", "se/a", "-n", "shop", "--to-revision", "2"); o.Code != exit.OK || o.Err != "" {
		t.Errorf("one object: %+v", o)
	}
	if o := ask("", "-A", "--to-revision", "6", "--yes"); o.Code != exit.OK || o.Err != "" {
		t.Errorf("--yes: %+v", o)
	}
	if o := ask("Y\n", "-A", "--to-revision", "1"); o.Code != exit.OK || o.Err != "Roll the whole store back to revision 1? 2 objects deleted. [y/N] " {
		t.Errorf("yes: %+v", o)
	}
}

// wordyAdvisor warns of each object that is written.
type wordyAdvisor struct{ danglingAdvisor }

func (wordyAdvisor) Advise(ops []storage.Op) [][]finding.Advice {
	out := make([][]finding.Advice, len(ops))
	for i := range ops {
		out[i] = []finding.Advice{{Text: "is odd", Severity: "warning"}, {Text: "is to be known", Severity: "info"}}
	}
	return out
}

// TestRollbackWarnsOnce: warnings that are shown with what a rollback would do are not repeated with
// what it has done.
func TestRollbackWarnsOnce(t *testing.T) {
	t.Parallel()
	a := line.On(resttest.Start(t, 0, func(o *rest.Options) { o.Advisor = wordyAdvisor{} }))
	a.Must(t, clitest.Entry("x", ", namespace: shop"), "apply", "-f", "-")
	a.Must(t, strings.Replace(clitest.Entry("x", ", namespace: shop"), "10.0.0.1", "10.0.0.2", 1), "apply", "-f", "-")
	const warnings = "Warning: serviceentry/shop/x: is odd\nInfo: serviceentry/shop/x: is to be known\n"
	o := a.Do(t, "", "rollback", "se/x", "-n", "shop")
	if o.Code != exit.OK || strings.Count(o.Err, "is odd") != 1 || !strings.HasPrefix(o.Err, warnings) {
		t.Errorf("%+v", o)
	}
	if o := a.Do(t, "", "rollback", "se/x", "-n", "shop", "--yes"); o.Code != exit.OK || o.Err != warnings {
		t.Errorf("%+v", o)
	}
}
