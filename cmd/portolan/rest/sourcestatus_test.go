package rest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// ofCluster is a snapshot of a WorkloadEntry of a cluster with what is reported of it.
func ofCluster(t *testing.T, version string, healthy *health.Report, report *status.Report) cache.Content {
	t.Helper()
	documents, err := config.Decode("test", []byte(workload("w", `,"uid":"of-w"`, "")), schema.Pilot().Type)
	if err != nil {
		t.Fatal(err)
	}
	object := documents[0].Config
	object.UID, object.Source, object.ResourceVersion, object.Generation = "of-w", "kube://east", version, 1
	var out cache.Content
	out.Judged = true
	out.Configs = out.Configs.Set(object.Key().Path(), object)
	if healthy != nil {
		healthy.Namespace, healthy.Name, healthy.UID, healthy.Revision = "shop", "w", object.UID, health.OfSource
		out.Health = pmap.Map[*health.Report]{}.Set(health.Path("shop", "w"), healthy)
	}
	if report != nil {
		report.Key, report.UID, report.Version, report.Generation = object.Key(), object.UID, version, 1
		out.Statuses = pmap.Map[*status.Report]{}.Set(object.Key().Path(), report)
	}
	return out
}

func programmedAt(revision int64, value, reason string) *status.Report {
	return &status.Report{Revision: revision, Conditions: []status.Condition{{Type: status.Programmed, Status: value, Reason: reason}}}
}

// TestStatusesOfAnotherSourceMoveTheVersion: each change of what is served of an object of another
// source, its health and its conditions, is another version and an event of watches, also of one
// that resumes from a list. What is the same on two servers has the same version.
func TestStatusesOfAnotherSourceMoveTheVersion(t *testing.T) {
	t.Parallel()
	sick := func() *health.Report { return &health.Report{Message: "503"} }
	well := func() *health.Report { return &health.Report{Healthy: true} }
	steps := []struct {
		revision int64
		content  cache.Content
		says     string
	}{
		{10, ofCluster(t, "k1", nil, nil), "Programmed=Unknown"},
		{10, ofCluster(t, "k1", sick(), nil), "Healthy=False Programmed=Unknown"},
		{10, ofCluster(t, "k1", well(), nil), "Healthy=True Programmed=Unknown"},
		{12, ofCluster(t, "k1", well(), programmedAt(12, status.False, "Waiting")), "Healthy=True Programmed=False"},
		{13, ofCluster(t, "k1", well(), programmedAt(13, status.True, "Acknowledged")), "Healthy=True Programmed=True"},
		{13, ofCluster(t, "k1", sick(), programmedAt(13, status.True, "Acknowledged")), "Healthy=False Programmed=True"},
		{13, ofCluster(t, "k2", sick(), programmedAt(13, status.True, "Acknowledged")), "Healthy=False Programmed=True"},
		{14, ofCluster(t, "k2", nil, programmedAt(14, status.True, "Acknowledged")), "Programmed=True"},
	}
	start := func() (*resttest.Server, *cache.Feed) {
		feed := cache.NewFeed(cache.FeedOptions{Worker: cache.NewWorker(), Schemas: schema.Pilot()})
		feed.Publish((*cache.Snapshot)(nil).Next(9, cache.Content{}))
		return resttest.Start(t, 0, func(o *rest.Options) {
			o.Cache, o.Permit, o.Place = feed, func(storage.Op) error { return nil }, func(config.Key) string { return "" }
		}), feed
	}
	s, feed := start()
	other, otherFeed := start()
	w := follow(t, s, workloads+"?watch=true&resourceVersion=9")
	next := func(w *watching) (says string, o entryObject) {
		t.Helper()
		line, err := w.lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the watch ended: %v", err)
		}
		e := parse[struct{ Object entryObject }](t, line)
		return saidOf(e.Object), e.Object
	}
	var seen []string
	for i, step := range steps {
		feed.Publish(feed.Snapshot().Next(step.revision, step.content))
		if i != 1 { // the other server missed one
			otherFeed.Publish(otherFeed.Snapshot().Next(step.revision, step.content))
		}
		says, told := next(w)
		if says != step.says {
			t.Errorf("step %d: the watch says %s, want %s", i, says, step.says)
		}
		version := told.Metadata.ResourceVersion
		if slices.Contains(seen, version) {
			t.Errorf("step %d has the version %s of an earlier one: %q", i, version, seen)
		}
		seen = append(seen, version)
		if i == 1 {
			continue
		}
		for _, at := range []*resttest.Server{s, other} {
			listed := parse[struct{ Items []entryObject }](t, at.Do(t, "GET", workloads, "").Body).Items
			if len(listed) != 1 || listed[0].Metadata.ResourceVersion != version || saidOf(listed[0]) != step.says {
				t.Errorf("step %d: listed %+v, want version %s", i, listed, version)
			}
		}
	}
	feed.Publish(feed.Snapshot().Next(15, feed.Snapshot().Content())) // nothing differs
	w = follow(t, s, workloads+"?watch=true&resourceVersion=13")
	for _, want := range seen[4:] {
		if _, told := next(w); told.Metadata.ResourceVersion != want {
			t.Errorf("a watch from 13 tells of %s, want %s", told.Metadata.ResourceVersion, want)
		}
	}
}

// saidOf returns Healthy and Programmed.
func saidOf(o entryObject) string {
	var out []string
	if o.Status == nil {
		return ""
	}
	for _, c := range o.Status.Conditions {
		if c.Type == health.ConditionType || c.Type == status.Programmed {
			out = append(out, fmt.Sprintf("%s=%s", c.Type, c.Status))
		}
	}
	return strings.Join(out, " ")
}
