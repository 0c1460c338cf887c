package rest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache/rest"
	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/cache/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
)

// count is an advisor that says how many operations are done together.
type count struct{}

func (count) Advise(ops []storage.Op) [][]string {
	out := make([][]string, len(ops))
	for i, op := range ops {
		if op.Config != nil {
			out[i] = []string{fmt.Sprintf("one of %d", len(ops))}
		}
	}
	return out
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
		if diff := cmp.Diff([]string{"serviceentry/shop/a: one of 2"}, result.Warnings); diff != "" {
			t.Errorf("%s (-want +got)\n%s", path, diff)
		}
	}
	if a := s.Do(t, "POST", batches, batchOf(write("apply", entry("a", "")), write("apply", strings.Replace(entry("b", ""), `"number":80`, `"number":800000`, 1)))); strings.Contains(a.Body, "one of") {
		t.Errorf("an invalid batch is advised on: %s", a.Body)
	}
}
