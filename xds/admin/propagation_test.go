package admin_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/beside"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// one has one object, from a file.
type one struct{ object *config.Config }

func (o one) Snapshot() *cache.Snapshot {
	return cache.NewSnapshot(7, pmap.Map[*config.Config]{}.Set(o.object.Key().Path(), o.object))
}

func (one) StoreRevision(context.Context) (int64, error) { return 7, nil }

// fakeServer is a server with two pushes and three proxies.
type fakeServer struct{}

func (fakeServer) Progress() *progress.Tally {
	proxy := func(id string, generation uint64, state protocol.State) progress.Proxy {
		return progress.Proxy{Proxy: &discovery.Proxy{ID: id}, Generation: generation, Types: []progress.Type{{Name: "CDS", Status: protocol.Status{State: state}}}}
	}
	return progress.NewTally(7, 2, nil, []progress.Proxy{
		proxy("has it", 2, protocol.Synced), proxy("has not got to it", 1, protocol.Synced), proxy("has not answered", 2, protocol.Stale),
		proxy("refuses another", 2, protocol.Rejected),
	}, nil, nil)
}

func (fakeServer) UsedObjects() (none [status.UseParts][]uint64) { return none }

func (fakeServer) ChangeCount() int64 { return 0 }

// TestHowFarAnObjectOfAFileHasCome: once the server has published the object's current content,
// proxies with all of the newest push count as Accepted.
func TestHowFarAnObjectOfAFileHasCome(t *testing.T) {
	t.Parallel()
	objects := one{&config.Config{Meta: config.Meta{GroupVersionKind: schema.VirtualService, Namespace: "shop", Name: "pay", Source: "conf", ResourceVersion: "f1"}}}
	view := &progress.View{ID: "a", Server: fakeServer{}, Statuses: statuses.New(nil, statuses.Options{}), Beside: &beside.Sources{}}
	ask := func() admin.Propagation {
		t.Helper()
		query := "?group=networking.istio.io&kind=VirtualService&namespace=shop&name=pay"
		value, err := admin.ServePropagation(view, objects, func(*config.Config) []string { return nil })(httptest.NewRequest("GET", admin.PropagationPath+query, nil))
		if err != nil {
			t.Fatal(err)
		}
		return value.(admin.Propagation)
	}
	if out := ask(); len(out.Behind) != 1 || out.Proxies() != 0 {
		t.Errorf("before it is published: %+v", out.Distribution)
	}
	older := *objects.object
	older.ResourceVersion = "f0"
	view.Beside.Follow(one{&older}.Snapshot())
	if out := ask(); len(out.Behind) != 1 {
		t.Errorf("an older content is published: %+v", out.Distribution)
	}
	view.Beside.Follow(objects.Snapshot())
	if out := ask(); len(out.Behind) != 0 || out.Count != (status.Count{Accepted: 2, Waiting: 2}) || out.Revision != 7 {
		t.Errorf("once it is published: %+v", out.Distribution)
	}
}
