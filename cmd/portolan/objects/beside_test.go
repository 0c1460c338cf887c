package objects

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// startBehind starts an API whose store has an object, web. A source of files that goes before
// the store has web, too, so the store's is not used.
func startBehind(t *testing.T) clitest.API {
	t.Helper()
	s, files := resttest.StartBeside(t, true)
	a := line.On(s)
	a.Must(t, clitest.Entry("web", mine), "apply", "-f", "-")
	files.Publish(t, "v1", clitest.Entry("web", mine))
	a.Until(t, func(now *cache.Snapshot) bool { return now.Shadows().Len() == 1 })
	return a
}

// TestWhatIsOfTheStoreIsFoundBehindFiles: export, rollback and --prune work on the objects of
// the store, even on those that a file's object hides.
func TestWhatIsOfTheStoreIsFoundBehindFiles(t *testing.T) {
	t.Parallel()
	a := startBehind(t)
	if out := a.Must(t, "", "export"); !strings.Contains(out, "name: web") || strings.Contains(out, "portolan.io/source") {
		t.Errorf("exported:\n%s", out)
	}
	gone := "serviceentry/shop/web  deleted  rev 3  it did not exist at revision 1; the object of the source files, web.yaml stands as before\n"
	clitest.Same(t, "rolled back", a.Must(t, "", "rollback", "-n", "shop", "--to-revision", "1", "--yes"), gone)
	if out := a.Must(t, "", "export"); out != "" {
		t.Errorf("exported:\n%s", out)
	}

	a = startBehind(t)
	a.Must(t, clitest.Entry("new", mine), "apply", "-f", "-")
	out := a.Must(t, clitest.Entry("new", mine), "apply", "-f", "-", "--prune", "-l", "app=shop")
	if !clitest.HasLine(out, []string{"serviceentry/shop/web", "deleted", "rev 4", "the object of the source files, web.yaml stands as before"}) {
		t.Errorf("pruned:\n%s", out)
	}
}

// TestADeleteTellsWhichFileTakesThePlace: a delete names the file whose object the deleted one
// had hidden.
func TestADeleteTellsWhichFileTakesThePlace(t *testing.T) {
	t.Parallel()
	s, _ := resttest.StartBeside(t, false, clitest.Entry("web", mine))
	a := line.On(s)
	a.Must(t, clitest.Entry("web", mine), "apply", "-f", "-")
	clitest.Same(t, "deleted", a.Must(t, "", "delete", "se/web", "-n", "shop", "--yes"),
		"serviceentry/shop/web  deleted  rev 3  the object of the source files, web.yaml takes its place\n")
}

// TestWhatTheStoreDoesNotHaveIsOfASource: history, rollback, edit and diff name the source of an
// object that the store does not have. No editor opens for it.
func TestWhatTheStoreDoesNotHaveIsOfASource(t *testing.T) {
	s, _ := resttest.StartBeside(t, false, clitest.Entry("web", mine), clitest.Entry("api", mine))
	a := line.On(s)
	t.Setenv("PORTOLAN_EDITOR", "false") // fails
	of := func(name string) string {
		return "serviceentry/shop/" + name + ": the object comes from the source files, " + name + ".yaml: change it there"
	}
	a.Must(t, clitest.Entry("own", mine), "apply", "-f", "-")
	for args, want := range map[string]string{
		"history se/web -n shop":                  "serviceentry/shop/web: there is no history of it: the object comes from the source files, web.yaml: its changes are made there, and not recorded here",
		"rollback se/web -n shop":                 "nothing was rolled back: " + of("web"),
		"rollback se/web -n shop --to-revision 1": "nothing was rolled back: " + of("web"),
		"edit se/own se/web se/api -n shop":       "nothing was edited: 2 faults:\n  " + of("web") + "\n  " + of("api"),
		"history se/none -n shop":                 "serviceentry/shop/none: there is no history of it: it never was, or its records are past their retention",
		"rollback se/none -n shop":                "nothing was rolled back: the history knows no change of serviceentry/shop/none",
	} {
		if o := a.Do(t, "", strings.Fields(args)...); o.Code == 0 || o.Err != "portolan: "+want+"\n" {
			t.Errorf("%s: exit code %d, %s", args, o.Code, o.Err)
		}
	}
	o := a.Do(t, clitest.Entry("web", mine), "diff", "-f", "-")
	clitest.Same(t, "diff", o.Err, "Warning: serviceentry/shop/web comes from the source files, web.yaml, and is compared with that: "+
		"an apply makes an object of the store, which is used instead\n")
}

// TestDiffForetellsTheApply: of objects of other sources diff says what an apply of the same file does, also
// that it is refused, and why. A dry run names the object that would not be used any more.
func TestDiffForetellsTheApply(t *testing.T) {
	t.Parallel()
	const from = "Warning: serviceentry/shop/web comes from the source files, web.yaml, and is compared with that: an apply is refused\n"
	s, _ := resttest.StartBeside(t, false, clitest.Entry("web", mine))
	behind := line.On(s)
	s, _ = resttest.StartBeside(t, true, clitest.Entry("web", mine))
	before := line.On(s)
	for name, test := range map[string]struct {
		a         clitest.API
		file, why string
	}{
		"as get shows it":             {behind, behind.Must(t, "", "get", "se/web", "-n", "shop", "-o", "yaml"), "without metadata.resourceVersion an apply makes an object of the store in its place"},
		"of another store":            {behind, clitest.Entry("web", mine+`, resourceVersion: "17"`), "is gone (you had version 17)"},
		"behind a source that counts": {before, clitest.Entry("web", mine), "it goes before the store"},
	} {
		applied := test.a.Do(t, test.file, "apply", "-f", "-")
		diff := test.a.Do(t, test.file, "diff", "-f", "-")
		_, why, _ := strings.Cut(strings.TrimSpace(applied.Err), "nothing was applied: ")
		why, _, _ = strings.Cut(why, "\n") // a hint of apply follows
		if applied.Code == exit.OK || diff.Code != exit.OK || diff.Out != "" || !strings.Contains(why, test.why) || diff.Err != from+"Warning: an apply is refused: "+why+"\n" {
			t.Errorf("%s: the apply is %+v, and its diff %+v", name, applied, diff)
		}
	}
	for _, args := range []string{"apply -f - --dry-run=server", "import -f - --dry-run=server", "apply -f -"} {
		if out := behind.Must(t, clitest.Entry("web", mine), strings.Fields(args)...); !strings.Contains(out, "is used instead of the object of the source files, web.yaml\n") {
			t.Errorf("%s: %s", args, out)
		}
	}
}

// TestWhatIsNotServedIsNamed: who asks for an object that a source has in a form that is not served, or
// compares with one, is told so.
func TestWhatIsNotServedIsNamed(t *testing.T) {
	t.Parallel()
	const warning = "Warning: source files has serviceentry/shop/bad in a form that is not served: see portolan source describe files\n"
	a := line.On(resttest.Start(t, 0, func(o *rest.Options) {
		o.Behind = func(read config.Key) []string {
			if read.Name != "bad" {
				return nil
			}
			return []string{"source files has " + read.String() + " in a form that is not served: see portolan source describe files"}
		}
	}, func(s *rest.Server) {
		s.Endpoint(admin.PropagationPath, func(http.ResponseWriter, *http.Request) error { return refusal.NotFound("not found") })
	}))
	for _, args := range []string{
		"get se/bad", "describe se/bad", "wait se/bad", "wait se/bad --for=condition=Programmed", "delete se/bad", "delete se/bad se/none --yes",
		"label se/bad a=b", "edit se/bad",
	} {
		if o := a.Do(t, "", append(strings.Fields(args), "-n", "shop")...); o.Code != exit.Failure || !strings.HasPrefix(o.Err, warning) || !strings.Contains(o.Err, "serviceentry/shop/bad: not found") || strings.Count(o.Err, "Warning") != 1 {
			t.Errorf("%s: %+v", args, o)
		}
	}
	if o := a.Do(t, clitest.Entry("bad", mine), "diff", "-f", "-"); o.Code != exit.Differences || o.Err != warning {
		t.Errorf("diff: %+v", o)
	}
}

// TestDiffOfAnObjectOfASource: a file that kubectl wrote differs from an object of a source only
// where an apply would change something. What servers and kubectl add is no difference.
func TestDiffOfAnObjectOfASource(t *testing.T) {
	t.Parallel()
	s, _ := resttest.StartBeside(t, false, clitest.Entry("web", mine), clitest.Entry("api", mine+", annotations: {team: a}"))
	a := line.On(s)
	of := func(name, annotations string) string {
		return clitest.Entry(name, mine+`, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"`+annotations+`},
  resourceVersion: "17", uid: 8d2f, generation: 3, creationTimestamp: "2026-01-02T03:04:05Z",
  managedFields: [{manager: kubectl, operation: Update, apiVersion: networking.istio.io/v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}}]`)
	}
	clitest.Same(t, "the diff of the same objects", a.Must(t, of("web", "")+"---\n"+of("api", ", team: a"), "diff", "-f", "-"), "")
	clitest.Same(t, "the diff of what get shows", a.Must(t, a.Must(t, "", "get", "se", "-n", "shop", "-o", "yaml"), "diff", "-f", "-"), "")
	o := a.Do(t, of("api", ", team: b"), "diff", "-f", "-")
	want := "--- serviceentry/shop/api\tfiles, api.yaml\n+++ serviceentry/shop/api\tstdin\n"
	if o.Code != exit.Differences || !strings.HasPrefix(o.Out, want) || !strings.Contains(o.Out, "\n-    team: a\n+    team: b\n") || strings.Count(o.Out, "\n-") != 1 {
		t.Errorf("%+v", o)
	}
}

// TestAllAreThoseOfTheStore: --all changes the objects of the store alone, and it is no fault if there are
// none. It names the others and where they are. Commands that only read take all.
func TestAllAreThoseOfTheStore(t *testing.T) {
	t.Parallel()
	s, _ := resttest.StartBeside(t, false, clitest.Entry("web", mine), clitest.Entry("api", mine), clitest.Entry("far", ", namespace: zoo"))
	a := line.On(s)
	const (
		one = "serviceentry/zoo/far: the object comes from the source files, far.yaml: change it there\n"
		two = "2 objects come from the source files: change them there, such as serviceentry/shop/api (files, api.yaml)\n"
	)
	for args, want := range map[string]string{
		"delete se --all -n zoo":                    one + "Nothing was deleted",
		"delete se --all -n zoo --ignore-not-found": one + "Nothing was deleted",
		"delete all --all -n shop":                  two + "Nothing was deleted",
		"delete se -l app=shop -A":                  two + "Nothing was deleted",
		"label se --all -n shop a=b":                two + "Nothing was labeled",
		"edit se --all -n shop":                     two + "Nothing was edited",
	} {
		if o := a.Do(t, "", strings.Fields(args)...); o.Code != exit.OK || o.Out != "" || o.Err != "Warning: "+want+": the store has no such objects.\n" {
			t.Errorf("%s: %+v", args, o)
		}
	}
	for _, args := range []string{"delete se/far", "label se/far a=b", "edit se/far", "edit se/far se/far"} {
		if o := a.Do(t, "", append(strings.Fields(args), "-n", "zoo")...); o.Code != exit.Data || !strings.Contains(o.Err, "the object comes from the source files, far.yaml: change it there") {
			t.Errorf("%s: %+v", args, o)
		}
	}
	clitest.Same(t, "labels", a.Must(t, "", "label", "se", "--all", "-n", "shop", "--list"), "serviceentry/shop/api  app=shop\nserviceentry/shop/web  app=shop\n")
	a.Must(t, clitest.Entry("own", mine)+"---\n"+clitest.Entry("web", mine), "apply", "-f", "-")
	o := a.Do(t, "", "delete", "se", "--all", "-n", "shop", "--yes")
	if o.Code != exit.OK || !strings.Contains(o.Out, "serviceentry/shop/own  deleted") || !strings.Contains(o.Out, "serviceentry/shop/web  deleted") ||
		o.Err != "Warning: serviceentry/shop/api: the object comes from the source files, api.yaml: change it there\n" {
		t.Errorf("%+v", o)
	}
}

// TestTablesSayWhereObjectsAreFrom: a table has the sources once an object is from elsewhere than the
// store, and a wide one always.
func TestTablesSayWhereObjectsAreFrom(t *testing.T) {
	t.Parallel()
	s, files := resttest.StartBeside(t, false)
	a := line.On(s)
	a.Must(t, clitest.Entry("mine", mine), "apply", "-f", "-")
	if out := a.Must(t, "", "get", "se", "-A"); strings.Contains(out, "SOURCE") {
		t.Errorf("all are of the store, and the table is\n%s", out)
	}
	if out := a.Must(t, "", "get", "se", "-A", "-o", "wide"); !strings.Contains(out, "SOURCE") || !strings.Contains(out, "store") {
		t.Errorf("the wide table is\n%s", out)
	}
	files.Publish(t, "v1", clitest.Entry("web", mine))
	a.Until(t, func(now *cache.Snapshot) bool { return now.Configs().Len() == 2 })
	for _, form := range []string{"table", "wide"} {
		out := a.Must(t, "", "get", "se", "-A", "-o", form)
		cells := map[string]string{}
		for _, row := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
			for _, source := range []string{"store", "files"} {
				if words := strings.Fields(row); slices.Contains(words, source) {
					cells[words[1]] += source
				}
			}
		}
		if !maps.Equal(cells, map[string]string{"mine": "store", "web": "files"}) {
			t.Errorf("-o %s says %v:\n%s", form, cells, out)
		}
	}
}

// TestDescribeAnObjectOfAFile: such an object has a place in its source, no revision, and no
// known age.
func TestDescribeAnObjectOfAFile(t *testing.T) {
	t.Parallel()
	const object = `{"apiVersion":"networking.istio.io/v1","kind":"VirtualService",
	  "metadata":{"name":"reviews","namespace":"shop","creationTimestamp":"1970-01-01T00:00:00Z","annotations":{"portolan.io/source":"conf, shop/reviews.yaml: document 1 (line 1)"}},
	  "spec":{"hosts":["reviews.shop"]}}`
	answer := func(r *http.Request) any {
		switch r.URL.Path {
		case admin.PropagationPath, admin.ReferencesPath, finding.Path:
			return describedObject(r)
		}
		return object
	}
	out, err := serving(t, answer, "describe", "vs/reviews", "-n", "shop")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out.Out, "describe-object-file.txt")
	out, err = serving(t, answer, "describe", "vs/reviews", "-n", "shop", "-o", "yaml")
	if err != nil || !strings.Contains(out.Out, "\nsource: 'conf, shop/reviews.yaml: document 1 (line 1)'\n") || !strings.Contains(out.Out, "propagation:") {
		t.Errorf("%v\n%s", err, out.Out)
	}
	out, err = serving(t, func(r *http.Request) any {
		if got, ok := answer(r).(admin.Propagation); ok {
			got.Faults = []string{`spec.http[0].rout: unknown field`}
			return got
		}
		return answer(r)
	}, "describe", "vs/reviews", "-n", "shop")
	_, rest, found := strings.Cut(out.Out, "\n\nNOT SERVED AS IT STANDS IN ITS SOURCE, BUT AS IT WAS BEFORE: ALL BELOW IS ABOUT THAT\nspec.http[0].rout: unknown field\n\n")
	if err != nil || !found || !strings.Contains(rest, "FINDING") {
		t.Errorf("%v\n%s", err, out.Out)
	}
	out, err = serving(t, func(*http.Request) any {
		return `{"apiVersion":"networking.istio.io/v1","kind":"VirtualServiceList","metadata":{"resourceVersion":"3"},"items":[` + object + `]}`
	}, "get", "vs", "-n", "shop")
	if row := strings.Fields(out.Out); err != nil || row[len(row)-1] != "conf" {
		t.Errorf("%v\n%s", err, out.Out)
	}
}

// TestExportTellsWhatItLeavesOut: a line for each source beside the store that has objects of what is
// exported.
func TestExportTellsWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	s, _ := resttest.StartBeside(t, false, clitest.Entry("web", mine), clitest.Entry("api", mine), clitest.Entry("far", ", namespace: zoo"))
	s.REST.Handle(maintenance.StatusPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(maintenance.Status{Sources: []maintenance.SourceStatus{
			{Name: "/etc/mesh", Kind: "directory"}, {Name: "files", Kind: "cluster", Objects: 3},
		}})
	}))
	a := line.On(s)
	a.Must(t, clitest.Entry("web", mine), "apply", "-f", "-")
	a.Until(t, func(now *cache.Snapshot) bool { return now.Shadows().Len() == 1 })
	for args, want := range map[string]string{
		"export":                      "Warning: 2 objects of the cluster files are not of the store and are left out: see portolan source describe files\n",
		"export -n shop":              "Warning: 1 object of the cluster files is not of the store and is left out: see portolan source describe files\n",
		"export se -n zoo":            "Warning: 1 object of the cluster files is not of the store and is left out: see portolan source describe files\n",
		"export virtualservices":      "",
		"export -n default":           "",
		"export virtualservices -n x": "",
	} {
		o := a.Do(t, "", strings.Fields(args)...)
		if o.Code != exit.OK || o.Err != want {
			t.Errorf("%s: %+v", args, o)
		}
		if args == "export" && !strings.Contains(o.Out, "name: web") {
			t.Errorf("exported:\n%s", o.Out)
		}
	}
}
