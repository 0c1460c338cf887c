package verdict_test

import (
	"context"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// deletions is a Source with the facts before and after operations.
type deletions struct{ is, would verdict.Facts }

func (d deletions) Facts() (verdict.Facts, bool) { return d.is, true }

func (d deletions) WouldBe([]storage.Op) (is, would verdict.Facts, known bool) {
	return d.is, d.would, true
}

func (deletions) Handled(ctx context.Context) error { return ctx.Err() }

// TestDanglingAdvice: a deletion warns of objects that still refer to what it deletes, if that
// has an effect and the same batch does not delete them.
func TestDanglingAdvice(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		documents []string
		delete    []string
		says      []string // the advice of each deletion; empty for none
		dangling  bool
	}{
		"a rule whose subset a route takes": {
			[]string{entry, rule("web", "{host: web.example.com, subsets: [{name: v1, labels: {version: v1}}]}"), routes("web", strings.Replace(toWeb, "}}]", ", subset: v1}}]", 1))},
			[]string{"destinationrule/default/web"}, []string{"virtualservice/default/web"}, true,
		},
		"with those that refer to it": {
			[]string{entry, rule("web", "{host: web.example.com, subsets: [{name: v1, labels: {version: v1}}]}"), routes("web", strings.Replace(toWeb, "}}]", ", subset: v1}}]", 1))},
			[]string{"destinationrule/default/web", "virtualservice/default/web"}, []string{"", ""}, false,
		},
		"a gateway of routes": {
			[]string{entry, gateway("edge", edge), routes("web", viaWeb)},
			[]string{"gateway/default/edge"}, []string{"PTL0103"}, true,
		},
		"a rule that nobody needs": {
			[]string{entry, rule("web", "{host: web.example.com}"), routes("web", toWeb)},
			[]string{"destinationrule/default/web"}, []string{""}, false,
		},
		"the last workload of a subset": {
			[]string{
				xdstest.Object("ServiceEntry", "some", "{hosts: [some.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: some}}}"),
				xdstest.Object("WorkloadEntry", "one", "{address: 10.0.0.1, labels: {app: some, version: v1}}"),
				xdstest.Object("WorkloadEntry", "two", "{address: 10.0.0.2, labels: {app: some, version: v2}}"),
				rule("some", "{host: some.example.com, subsets: [{name: v1, labels: {version: v1}}]}"),
			},
			[]string{"workloadentry/default/one"}, []string{"PTL0104"}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := xdstest.NewWorld(t, test.documents...)
			d := deletions{is: verdict.Facts{Mesh: w.Context()}}
			var ops []storage.Op
			for _, key := range test.delete {
				w.Delete(key)
				ops = append(ops, storage.Op{Verb: storage.Delete, Key: keyOf(key)})
			}
			d.would = verdict.Facts{Mesh: w.Context()}
			for i, advice := range index.NewKeeper(d).Advise(ops) {
				if test.says[i] == "" {
					if len(advice) > 0 {
						t.Errorf("%s: %+v", test.delete[i], advice)
					}
					continue
				}
				if len(advice) != 1 || !strings.Contains(advice[0].Text, test.says[i]) || advice[0].Dangling != test.dangling {
					t.Errorf("%s: %+v", test.delete[i], advice)
				}
			}
		})
	}
}

// TestAdviceDoesNotJudgeSchemas: the API has the warnings of the schemas when it asks for advice,
// so advice costs less than to judge the objects.
func TestAdviceDoesNotJudgeSchemas(t *testing.T) {
	w := xdstest.NewWorld(t, entry)
	d := deletions{is: verdict.Facts{Mesh: w.Context()}}
	w.Apply(routes("web", "{hosts: [web.example.com], http: ["+strings.Repeat("{match: [{uri: {exact: /a}}], route: [{destination: {host: web.example.com}}]}, ", 20)+"]}"))
	d.would = verdict.Facts{Mesh: w.Context()}
	k := index.NewKeeper(d)
	ops := []storage.Op{{Verb: storage.Delete}}
	judged := testing.AllocsPerRun(10, func() { k.Index().Next(d.would) })
	advised := testing.AllocsPerRun(10, func() { k.Advise(ops) })
	if advised >= judged {
		t.Errorf("advice takes %v allocations, and to judge the objects %v", advised, judged)
	}
}
