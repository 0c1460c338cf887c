package kubetest_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache/kube"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/kube/selection"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/kubetest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/logtest"
)

// A fault says that the last good content of its object is served, also if that was recalled, and if
// its namespace does not count for a time.
func TestRefusedAfterARestart(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	for _, name := range []string{"shop", "other"} {
		namespace(t, api, name)
	}
	listed := listWorkloads(api)
	listed.change(func() { listed.all = map[string]string{"web": ""} })
	before := run(t, api)
	before.await("WorkloadEntry web")
	had := slices.Collect(before.Snapshot().Configs().Values())

	refuse := func(name, address string) {
		listed.change(func() { listed.all[name], listed.address[name] = "", address })
	}
	refuse("web", "no address!")
	refuse("new", "nor this!")
	log, selectors := &logtest.Log{}, selection.NewSelectors()
	named(t, selectors, "other")
	c, err := cluster.New(func() cluster.Options {
		o := options(api)
		o.Selectors, o.Log = selectors, slog.New(slog.NewTextHandler(log, nil))
		return o
	}())
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, api, func(o *kube.Options) {
		o.Cluster = c
		o.Recall = func(context.Context) ([]*config.Config, time.Time, error) { return had, time.Unix(3000, 0), nil }
	})
	faults := func(r running, want ...string) {
		t.Helper()
		r.until(fmt.Sprint(want), func() bool {
			var got []string
			for _, p := range r.Problems() {
				got = append(got, fmt.Sprintf("%s %t %t", p.Object, strings.Contains(p.Message, "nor this!"), p.Serving))
			}
			return slices.Equal(got, want)
		})
	}
	r.until("all is listed", r.Confirmed)
	faults(r)
	r.await()
	named(t, selectors, "shop")
	faults(r, "workloadentry/shop/new true false", "workloadentry/shop/web false true")
	r.await("WorkloadEntry web")
	refuse("web", "nor this!")
	faults(r, "workloadentry/shop/new true false", "workloadentry/shop/web true true")
	r.until("the log says so", func() bool { return log.Count("kept=true") > 0 })
	for text, want := range map[string]int{"shop/new: ": 0, "kept=true": 1} {
		if got := log.Count(text); got != want {
			t.Errorf("%q is logged %d times, want %d", text, got, want)
		}
	}
	faults(before, "workloadentry/shop/new true false", "workloadentry/shop/web true true")
	refuse("web", "")
	faults(r, "workloadentry/shop/new true false")
	listed.change(func() { delete(listed.all, "web") })
	r.await()
	refuse("web", "nor this!")
	faults(r, "workloadentry/shop/new true false", "workloadentry/shop/web true false")
}
