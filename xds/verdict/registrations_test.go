package verdict_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestAGroupTellsWhoIsNotRegistered: the reports of all servers about a group are its verdicts, each
// once and ten at most, until no server reports them.
func TestAGroupTellsWhoIsNotRegistered(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.Object("WorkloadGroup", "web", "{template: {serviceAccount: web}}"))
	path := config.Key{Kind: schema.WorkloadGroup, Namespace: "default", Name: "web"}.Path()
	refused := status.Registration{Group: path, Node: "a", Reason: "no"}
	partly := status.Registration{Group: path, Node: "b", Registered: true, Reason: "without its labels"}
	var many []status.Registration
	for i := range 20 {
		many = append(many, status.Registration{Group: path, Node: fmt.Sprintf("m%02d", i), Reason: "no"})
	}
	reports := func(of ...[]status.Registration) (out pmap.Map[*status.Replica]) {
		for i, one := range of {
			id := fmt.Sprint(i)
			out = out.Set(id, &status.Replica{ID: id, Registrations: one})
		}
		return out
	}
	var x *index.Index
	for i, step := range []struct {
		reports      pmap.Map[*status.Replica]
		refused, all []string
	}{
		{reports: reports(nil)},
		{reports([]status.Registration{refused, partly}, []status.Registration{refused}),
			[]string{"default/web the proxy a is not registered: no"}, []string{"default/web the proxy b is registered without its labels"}},
		{reports: reports([]status.Registration{partly}), all: []string{"default/web the proxy b is registered without its labels"}},
		{reports: reports(nil)},
	} {
		facts := verdict.Facts{Mesh: w.Context(), Replicas: step.reports}
		next, got := verdictsOf(t, x, facts, verdict.RegistrationRefused)
		if diff := cmp.Diff(step.refused, got); diff != "" {
			t.Errorf("step %d, refused (-want +got)\n%s", i, diff)
		}
		if _, got = verdictsOf(t, x, facts, verdict.RegistrationPartly); !cmp.Equal(step.all, got) {
			t.Errorf("step %d, partly: %v, want %v", i, got, step.all)
		}
		x = next
	}
	if _, got := verdictsOf(t, x, verdict.Facts{Mesh: w.Context(), Replicas: reports(many)}, verdict.RegistrationRefused); len(got) != 10 {
		t.Errorf("of many: %q", got)
	}
}
