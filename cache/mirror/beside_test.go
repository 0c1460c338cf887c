package mirror_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// treesRig writes the trees beside the objects, and records the calls of handlers.
type treesRig struct {
	*cachetest.Rig
	t      *testing.T
	client *clientv3.Client
	events []string // written by the worker
}

func newBeside(t *testing.T) *treesRig {
	t.Helper()
	client := etcdtest.Start(t)
	b := &treesRig{Rig: cachetest.NewRig(t, subject(t, client, client)), t: t, client: client}
	err := b.Cache.RegisterSnapshotHandler(func(from, to *cache.Snapshot) {
		for c := range pmap.Diff(from.Addresses(), to.Addresses()) {
			b.events = append(b.events, "address "+c.Key)
		}
		for c := range pmap.Diff(from.Health(), to.Health()) {
			b.events = append(b.events, "health "+c.Key)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Handler(schema.ServiceEntry, func(_, curr *config.Config, event cache.Event) {
		b.events = append(b.events, event.String()+" "+curr.Name)
	})
	return b
}

// put writes keys and values as one revision.
func (b *treesRig) put(pairs ...string) string {
	b.t.Helper()
	var ops []clientv3.Op
	for pair := range slices.Chunk(pairs, 2) {
		ops = append(ops, clientv3.OpPut(pair[0], pair[1]))
	}
	answer, err := b.client.Txn(b.t.Context()).Then(ops...).Commit()
	if err != nil {
		b.t.Fatal(err)
	}
	return fmt.Sprint(answer.Header.Revision)
}

// expect compares the calls of handlers since the last time.
func (b *treesRig) expect(revision string, told ...string) {
	b.t.Helper()
	b.Settle(revision)
	if d := cmp.Diff(told, b.events); d != "" {
		b.t.Errorf("at %s handlers were told (-want +got):\n%s", revision, d)
	}
	b.events = nil
}

func addressValue(t testing.TB, namespace, host, ipv4 string, owners ...string) string {
	t.Helper()
	value, err := proto.Marshal(&envelope.Address{Namespace: namespace, Host: host, Ipv4: ipv4, Ipv6: "2001:2::1", Owners: owners})
	if err != nil {
		t.Fatal(err)
	}
	return "ptl\x01" + string(value)
}

func healthValue(t testing.TB, r health.Report) string {
	t.Helper()
	value, err := envelope.Encode(&envelope.Health{
		Namespace: r.Namespace, Name: r.Name, Healthy: r.Healthy, Unknown: r.Unknown, Reason: r.Reason, Message: r.Message,
		Since: r.Since.UnixNano(), Probed: r.Probed.UnixNano(), Uid: r.UID,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(value)
}

// TestWhatIsKeptBesideTheObjects: a snapshot has the addresses and the health of its
// revision. Handlers get them in the task of the objects and before these. Undecodable
// values are in quarantine.
func TestWhatIsKeptBesideTheObjects(t *testing.T) {
	t.Parallel()
	b := newBeside(t)
	address, since := etcd.AddressKey("a", "db.example"), time.Unix(1000, 0).UTC()
	given := b.put(address, addressValue(t, "a", "db.example", "240.240.0.1", "x"))
	b.Start()
	b.expect(given, "address a/db.example")
	first := b.Cache.Snapshot().Addresses().Value("a/db.example")
	if first == nil || first.IPv4.String() != "240.240.0.1" || fmt.Sprint(first.Revision) != given {
		t.Fatalf("the address of the list is %+v", first)
	}

	sick := health.Report{Namespace: "a", Name: "w", Reason: "Probe", Message: "refused", Since: since, Probed: since}
	object := cachetest.ServiceEntry("a", "x", 1)
	encoded, err := etcd.Encode(object, nil)
	if err != nil {
		t.Fatal(err)
	}
	both := b.put(etcd.ConfigKey(object.Key()), string(encoded), etcd.HealthKey("a", "w"), healthValue(t, sick))
	b.expect(both, "health a/w", "add x")
	sick.Revision = cachetest.Revision(t, both)
	if d := cmp.Diff(&sick, b.Cache.Snapshot().Health().Value("a/w")); d != "" {
		t.Errorf("the report (-want +got):\n%s", d)
	}

	owned := b.put(address, addressValue(t, "a", "db.example", "240.240.0.1", "x", "y"))
	b.expect(owned) // owners of an address do not matter to a cache
	if b.Cache.Snapshot().Addresses().Value("a/db.example") != first {
		t.Error("an address was replaced by an equal one")
	}
	broken := b.put(address, "?", etcd.HealthPrefix+"short", "?")
	b.expect(broken)
	if got := mirrorOf(b.Rig).Quarantine(); got.Len() != 2 || got.Foreign() != 1 {
		t.Errorf("in quarantine are %q", shown(got))
	}
	if b.Cache.Snapshot().Addresses().Value("a/db.example") != first {
		t.Error("the last good address is not served any more")
	}
	gone, err := b.client.Delete(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	b.expect(fmt.Sprint(gone.Header.Revision), "address a/db.example")
	if s := b.Cache.Snapshot(); s.Addresses().Len() != 0 || s.Health().Len() != 1 {
		t.Errorf("in the end there are %d addresses and %d reports", s.Addresses().Len(), s.Health().Len())
	}
}

// TestTheCheckCoversWhatIsBeside: a comparison finds a value beside the objects that the
// cache lacks, has wrongly, or has of another revision.
func TestTheCheckCoversWhatIsBeside(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	var drop atomic.Bool
	m := mutate(client, func(r clientv3.WatchResponse) []clientv3.WatchResponse {
		if drop.Load() && len(r.Events) > 0 {
			r.Events = nil
		}
		return []clientv3.WatchResponse{r}
	})
	r := cachetest.NewRig(t, subject(t, m, client, checkEvery(-1)))
	b := &treesRig{Rig: r, t: t, client: client}
	r.Start()
	key := etcd.AddressKey("a", "db.example")
	r.Settle(b.put(key, addressValue(t, "a", "db.example", "240.240.0.1"), etcd.HealthKey("a", "w"), healthValue(t, health.Report{Namespace: "a", Name: "w"})))
	if err := mirrorOf(r).Compare(t.Context(), true); err != nil {
		t.Fatalf("the cache is equal, and the check says %v", err)
	}
	drop.Store(true)
	for what, change := range map[string]func(){
		"a value of another revision": func() { b.put(key, addressValue(t, "a", "db.example", "240.240.0.2")) },
		"one more":                    func() { b.put(etcd.HealthKey("a", "v"), healthValue(t, health.Report{Namespace: "a", Name: "v"})) },
		"one less": func() {
			if _, err := client.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		},
	} {
		change()
		r.Await(fmt.Sprint(revisionOf(t, client))) // by a progress notification
		if err := mirrorOf(r).Compare(t.Context(), false); err == nil {
			t.Errorf("%s: the check found nothing", what)
		}
	}
}
