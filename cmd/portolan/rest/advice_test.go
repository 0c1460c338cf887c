package rest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// count is an advisor that says how many operations come together, and that a deletion
// leaves a dangling reference.
type count struct{}

func (count) Advise(ops []storage.Op) [][]finding.Advice {
	out := make([][]finding.Advice, len(ops))
	for i, op := range ops {
		if op.Config != nil {
			out[i] = []finding.Advice{{Text: fmt.Sprintf("one of %d", len(ops))}}
		} else {
			out[i] = []finding.Advice{{Text: "somebody dangles", Dangling: true}}
		}
	}
	return out
}

func (count) Await(context.Context, int64) error { return nil }

func (count) Findings(ops []storage.Op) (finding.List, bool) {
	list := finding.List{Revision: 7}
	for _, op := range ops {
		list.Items = append(list.Items, finding.Finding{Code: "PTL0000", Object: finding.Object{Namespace: op.Target().Namespace, Name: op.Target().Name}})
	}
	return list, true
}

// graded is an advisor with one advice of a severity.
type graded struct {
	count
	severity string
}

func (g graded) Advise(ops []storage.Op) [][]finding.Advice {
	out := make([][]finding.Advice, len(ops))
	out[0] = []finding.Advice{{Text: "a finding", Severity: g.severity}}
	return out
}

// TestStrictBatches: a strict batch is refused because of warnings of its severity and worse,
// never because of an info; and nothing is written then.
func TestStrictBatches(t *testing.T) {
	t.Parallel()
	for severity, refused := range map[string][]string{"error": {"error", "warning"}, "warning": {"warning"}, "info": nil} {
		s := resttest.Start(t, 0, func(o *rest.Options) { o.Advisor = graded{severity: severity} })
		for _, strict := range []string{"error", "warning", ""} {
			want := 200
			if slices.Contains(refused, strict) {
				want = 422
			}
			body := strings.Replace(batchOf(write("apply", entry("a", ""))), "{", `{"strict":"`+strict+`",`, 1)
			a := s.Do(t, "POST", batches, body)
			if a.Code != want || want == 422 && !strings.Contains(a.Body, "a finding") {
				t.Errorf("a finding of severity %s, strict %q: %d %s", severity, strict, a.Code, a.Body)
			}
			if words := "it is strict and has " + strict + "s: "; a.Code == 422 && !strings.Contains(a.Body, words) {
				t.Errorf("strict %q: %s does not say %q", strict, a.Body, words)
			}
			if made := s.Do(t, "GET", shopEntries+"/a", "").Code == 200; made != (want == 200) {
				t.Errorf("a finding of severity %s, strict %q: written %v", severity, strict, made)
			}
			s.Do(t, "DELETE", shopEntries+"/a", "")
		}
	}
	// A field without effect counts as a warning.
	const odd = `{"apiVersion":"extensions.istio.io/v1alpha1","kind":"WasmPlugin","metadata":{"name":"f","namespace":"shop"},"spec":{"url":"file:///b","imagePullSecret":"a"}}`
	s := resttest.Start(t, 0, nil)
	for strict, want := range map[string]int{"error": 200, "warning": 422, "info": 400} {
		if a := s.Do(t, "POST", batches, strings.Replace(batchOf(write("apply", odd)), "{", `{"strict":"`+strict+`",`, 1)); a.Code != want {
			t.Errorf("strict %s: %d %s", strict, a.Code, a.Body)
		}
	}
}

func TestAdviceIsAmongTheWarnings(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Advisor = count{} })
	for _, do := range []struct{ method, path string }{
		{"POST", shopEntries + "?dryRun=All"}, {"POST", shopEntries}, {"PUT", shopEntries + "/x"},
	} {
		a := s.Do(t, do.method, do.path, entry("x", ""))
		if w := a.Header.Values("Warning"); a.Code >= 300 || !strings.Contains(strings.Join(w, "\n"), `"one of 1"`) {
			t.Errorf("%s %s: %d, warnings %q", do.method, do.path, a.Code, w)
		}
	}
	for _, path := range []string{batches + "?dryRun=All", batches} {
		a := s.Do(t, "POST", path, batchOf(write("apply", entry("a", "")), write("delete", entry("x", ""))))
		result := parse[batch.Result](t, a.Body)
		if diff := cmp.Diff([]string{"serviceentry/shop/a: one of 2", "serviceentry/shop/x: somebody dangles"}, result.Warnings); diff != "" {
			t.Errorf("%s (-want +got)\n%s", path, diff)
		}
		if diff := cmp.Diff([][]string{nil, {"somebody dangles"}}, [][]string{result.Results[0].Dangling, result.Results[1].Dangling}); diff != "" {
			t.Errorf("%s: dangling (-want +got)\n%s", path, diff)
		}
	}
	create(t, s, "y", "")
	if a := s.Do(t, "DELETE", shopEntries+"/y", ""); !strings.Contains(strings.Join(a.Header.Values("Warning"), "\n"), "somebody dangles") {
		t.Errorf("a delete of one object: %d, warnings %q", a.Code, a.Header.Values("Warning"))
	}
	const odd = `{"apiVersion":"extensions.istio.io/v1alpha1","kind":"WasmPlugin","metadata":{"name":"f","namespace":"shop"},"spec":{"url":"file:///b","imagePullSecret":"a"}}`
	result := parse[batch.Result](t, s.Do(t, "POST", batches, batchOf(write("apply", odd))).Body)
	if diff := cmp.Diff([]string{"wasmplugin/shop/f: spec.imagePullSecret has no effect here: it is for images (oci://), which are refused (PTL0121)", "wasmplugin/shop/f: one of 1"}, result.Warnings); diff != "" {
		t.Errorf("what the schema says comes first (-want +got)\n%s", diff)
	}
	if a := s.Do(t, "POST", batches, batchOf(write("apply", entry("a", "")), write("apply", strings.Replace(entry("b", ""), `"number":80`, `"number":800000`, 1)))); strings.Contains(a.Body, "one of") {
		t.Errorf("an invalid batch is advised on: %s", a.Body)
	}
}

// GET returns the present findings, and POST those after a batch, which is checked like
// a batch and writes nothing.
func TestFindings(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Advisor = count{} })
	if a := s.Do(t, "GET", finding.Path, ""); a.Code != 200 || parse[finding.List](t, a.Body).Revision != 7 {
		t.Errorf("GET: %d %s", a.Code, a.Body)
	}
	body := batchOf(write("apply", entry("a", "")), write("delete", entry("x", "")))
	a := s.Do(t, "POST", finding.Path+"?namespace=shop", body)
	if list := parse[finding.List](t, a.Body); a.Code != 200 || list.Kind != finding.ListKind || len(list.Items) != 2 || list.Items[0].Object.Name != "a" {
		t.Errorf("POST: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "POST", finding.Path+"?namespace=edge", body); len(parse[finding.List](t, a.Body).Items) != 0 {
		t.Errorf("of another namespace: %s", a.Body)
	}
	if a := s.Do(t, "GET", shopEntries+"/a", ""); a.Code != 404 {
		t.Errorf("POST of findings has written: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "POST", finding.Path, batchOf(write("apply", strings.Replace(entry("b", ""), `"number":80`, `"number":800000`, 1)))); a.Code != 422 {
		t.Errorf("an invalid batch: %d %s", a.Code, a.Body)
	}
	if a := s.Do(t, "DELETE", finding.Path, ""); a.Code != 405 {
		t.Errorf("DELETE: %d", a.Code)
	}
}
