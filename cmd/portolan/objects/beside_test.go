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
		"an apply makes an object of the store, which is used instead if the store goes first (portolan source list), and is refused if not\n")
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

// TestAllAreThoseOfTheStore: --all changes the objects of the store alone. It names the others and where
// they are, and fails if there are no others. Commands that only read take all.
func TestAllAreThoseOfTheStore(t *testing.T) {
	t.Parallel()
	s, _ := resttest.StartBeside(t, false, clitest.Entry("web", mine), clitest.Entry("api", mine), clitest.Entry("far", ", namespace: zoo"))
	a := line.On(s)
	const (
		one = "serviceentry/zoo/far: the object comes from the source files, far.yaml: change it there\n"
		two = "2 objects come from the source files: change them there, such as serviceentry/shop/api (files, api.yaml)\n"
	)
	for args, want := range map[string]string{
		"delete se --all -n zoo":     "portolan: nothing was deleted: " + one,
		"delete all --all -n shop":   "portolan: nothing was deleted: " + two,
		"delete se -l app=shop -A":   "portolan: nothing was deleted: " + two,
		"label se --all -n shop a=b": "portolan: nothing was labeled: " + two,
		"edit se --all -n shop":      "portolan: nothing was edited: " + two,
	} {
		if o := a.Do(t, "", strings.Fields(args)...); o.Code != exit.Failure || o.Out != "" || o.Err != want {
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

// TestExportTellsWhatItLeavesOut: a line for each source beside the store that has objects.
func TestExportTellsWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	a := line.On(resttest.Start(t, 0, nil, func(s *rest.Server) {
		s.Handle(maintenance.StatusPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(maintenance.Status{Sources: []maintenance.SourceStatus{
				{Name: "/etc/mesh", Kind: "directory"}, {Name: "kube://east", Kind: "cluster", Objects: 12}, {Name: "kube://west", Kind: "cluster", Objects: 1},
			}})
		}))
	}))
	a.Must(t, clitest.Entry("web", mine), "apply", "-f", "-")
	o := a.Do(t, "", "export")
	clitest.Same(t, "what is left out", o.Err, `Warning: 12 objects of the cluster kube://east are not of the store and are left out: see portolan source describe kube://east
Warning: 1 object of the cluster kube://west is not of the store and is left out: see portolan source describe kube://west
`)
	if !strings.Contains(o.Out, "name: web") {
		t.Errorf("exported:\n%s", o.Out)
	}
}
