package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// machines is many proxies of one group at one server, with the etcd under it.
type machines struct {
	*testing.T
	server  *server
	etcd    *clientv3.Client
	host    string
	proxies []*xdstest.Client
}

// entries is the prefix of WorkloadEntries in etcd.
var entries = etcd.ConfigPrefix + config.KindPath(schema.WorkloadEntry)

func startMachines(t *testing.T, n int) *machines {
	client, host := startEtcdWithClient(t)
	return &machines{T: t, server: startServer(t, serverOptions{etcd: host}), etcd: client, host: host, proxies: make([]*xdstest.Client, n)}
}

// connect connects the first proxies, those that are connected anew.
func (c *machines) connect(n int) {
	var all sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if c.proxies[i] != nil {
				c.proxies[i].Close()
			}
			node := xdstest.NewNode("sidecar", fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), fmt.Sprintf("vm-%d", i), "shop", nil)
			node.GetMetadata().GetFields()["AUTO_REGISTER_GROUP"] = structpb.NewStringValue("web")
			p, err := xdstest.Open(c.T, c.server.xds, xdstest.ClientOptions{Node: node, Variant: protocol.Delta})
			if err != nil {
				c.Error(err)
				return
			}
			p.Subscribe(xdstest.ClusterType)
			p.Subscribe(xdstest.ListenerType)
			c.proxies[i] = p
		})
	}
	all.Wait()
}

// awaitTaken waits until the server has written so many entries in all.
func (c *machines) awaitTaken(n int) {
	c.Helper()
	eventually(c.T, fmt.Sprintf("%d registrations", n), func() error {
		if got := c.server.counter("portolan_registrations_total"); got < n {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// burden is what etcd and the server have done so far.
type burden struct {
	at                    time.Time
	revisions, raft, size int64
	cpu                   time.Duration
}

func (c *machines) burden() burden {
	c.Helper()
	status, err := c.etcd.Status(c.Context(), c.host)
	if err != nil {
		c.Fatal(err)
	}
	return burden{time.Now(), status.Header.Revision, int64(status.RaftIndex), status.DbSizeInUse, cpuOf(fmt.Sprint(c.server.process.pid()))} //nolint:gosec // small
}

// tell logs what each of n registrations has cost since an earlier time, or all for 0.
func (c *machines) tell(what string, from burden, n int) burden {
	c.Helper()
	now := c.burden()
	each := func(v int64) float64 { return float64(v) / float64(max(n, 1)) }
	c.Logf("%s: %d registrations in %v; for each, or for all if there are none: %.2f revisions, %.2f raft entries, %.0f bytes of etcd, %v of the server's processor; the server had %.1f %% of a core",
		what, n, now.at.Sub(from.at).Round(time.Millisecond), each(now.revisions-from.revisions), each(now.raft-from.raft), each(now.size-from.size),
		((now.cpu - from.cpu) / time.Duration(max(n, 1))).Round(time.Microsecond), 100*float64(now.cpu-from.cpu)/float64(now.at.Sub(from.at)))
	return now
}

// TestSoakRegistrations: many proxies register within a minute, and keep their entries while they
// do nothing and while some of them connect again and again. A registration is two transactions
// at most, of which one is a revision.
func TestSoakRegistrations(t *testing.T) {
	t.Parallel()
	n, flapping, quiet, rounds := 60, 10, 3*time.Second, 3
	if long := longtest.Soak(t); long > 0 {
		n, flapping, quiet, rounds = 2000, 200, 20*time.Second, max(1, int(long/(2*time.Second)))
	}
	c := startMachines(t, n)
	c.server.apply(newGroupWeb(t).group())
	from := c.burden()
	c.connect(n)
	c.awaitTaken(n)
	if took := time.Since(from.at); took > time.Minute {
		t.Errorf("%d proxies were registered after %v", n, took)
	}
	registered := c.tell("registering", from, n)
	if each := float64(registered.revisions-from.revisions) / float64(n); each > 1.5 {
		t.Errorf("a registration costs %.2f revisions", each)
	}

	gone := c.etcd.Watch(t.Context(), entries, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	<-gone
	quietFrom := c.burden()
	time.Sleep(quiet) // nothing happens: the leases are renewed
	now := c.tell("quiet", quietFrom, 0)
	for range rounds {
		c.connect(flapping)
		time.Sleep(time.Second) // until they connect anew
	}
	c.awaitTaken(n + flapping) // each is taken at least once
	c.tell("flapping", now, rounds*flapping)
	select {
	case answer := <-gone:
		t.Errorf("entries went: %v", answer.Events)
	default:
	}
	found, err := c.etcd.Get(t.Context(), entries, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || found.Count != int64(n) {
		t.Errorf("%d entries, want %d, %v", found.Count, n, err)
	}
	closed := time.Now()
	for _, p := range c.proxies[1:] { // while one is left, the others are gone, and not this server cut off
		p.Close()
	}
	eventually(t, "all entries but one are gone", func() error {
		found, err := c.etcd.Get(t.Context(), entries, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && found.Count != 1 {
			err = fmt.Errorf("%d are there", found.Count)
		}
		return err
	})
	t.Logf("the entries are gone %v after the proxies", time.Since(closed).Round(time.Millisecond))
}
