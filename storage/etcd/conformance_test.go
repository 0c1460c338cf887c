package etcd_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/storetest"
)

// reached is an empty etcd, with two clients: of a store, and of the owner of the etcd.
type reached struct{ store, owner *clientv3.Client }

// ways are all the ways in which a store reaches its etcd. Each returns a function that
// gives every test an etcd of its own.
var ways = []struct {
	name string
	open func(t *testing.T) func(t *testing.T) reached
}{
	{"in process", func(*testing.T) func(*testing.T) reached {
		return func(t *testing.T) reached { return same(etcdtest.Start(t)) }
	}},
	{"unix socket", func(*testing.T) func(*testing.T) reached {
		return func(t *testing.T) reached { return same(etcdtest.Dial(t, etcdtest.Listen(t))) }
	}},
	{"TLS and the documented user", func(t *testing.T) func(*testing.T) reached {
		secured := etcdtest.NewSecured(t)
		return inTurns(reached{store: secured.Dial(t, "portolan"), owner: secured.Dial(t, "root")})
	}},
	{"three members", func(t *testing.T) func(*testing.T) reached {
		return inTurns(same(etcdtest.Dial(t, etcdtest.Endpoints(etcdtest.Cluster(t))...)))
	}},
}

func same(client *clientv3.Client) reached { return reached{client, client} }

// inTurns lends one etcd to one test after the other.
func inTurns(r reached) func(*testing.T) reached {
	take := etcdtest.TakeTurns(r.owner)
	return func(t *testing.T) reached {
		take(t)
		return r
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			reach := way.open(t)
			storetest.Run(t, func(t *testing.T) storage.ConfigStore { return open(t, reach(t).store) })
		})
	}
}

func TestHistoryConformance(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			reach := way.open(t)
			storetest.RunHistory(t, func(t *testing.T, now func() time.Time) storetest.HistorySubject {
				r := reach(t)
				return storetest.HistorySubject{
					Store:   open(t, r.store, func(o *etcd.Options) { o.Now = now }),
					Compact: func(t *testing.T, version string) { compact(t, r.owner, version) },
				}
			})
		})
	}
}
