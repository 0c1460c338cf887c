package rest_test

import (
	"context"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// lateStatuses is a cache that listed its statuses again: the report on z of revision 3
// comes together with the object of revision 4, although the history has both revisions.
type lateStatuses struct{ rest.Source }

func (l lateStatuses) Next(ctx context.Context, after *cache.Snapshot) (*cache.Snapshot, error) {
	next, err := l.Await(ctx, min(after.Revision()+1, 4))
	if err != nil || next.Revision() < 4 {
		return next, err
	}
	key := config.Key{Kind: schema.ServiceEntry, Namespace: "shop", Name: "z"}
	said := &status.Report{Key: key, UID: next.Get(key).UID, Revision: 3}
	return next.WithStatuses(pmap.Map[*status.Report]{}.Set(key.Path(), said), true), nil
}

// TestAWatchGoesForward: events that come together are in the order of the revisions, so
// that a client that got half of them resumes correctly.
func TestAWatchGoesForward(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Cache = lateStatuses{o.Cache} })
	create(t, s, "z", "")
	w := follow(t, s, entries+"?watch=true")
	w.expect("ADDED z@2")
	apply(t, s, write("apply", logging)) // revision 3
	create(t, s, "a", "")
	w.expect("MODIFIED z@3", "ADDED a@4")
}
