package propagation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache/side"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds"
)

const (
	// interval is how often it is looked whether there is something to write.
	interval = time.Second
	// pause is how long nothing must have moved before a look, which is at all proxies
	// and would hold up a change that is on its way to them.
	pause = interval / 10
	// leaseTTL is how long after the death of a server its report stands, in seconds.
	leaseTTL = 15
	// maxTroubles bounds the proxies that a report names.
	maxTroubles = 16
	// maxBatches bounds the transactions of one look.
	maxBatches = 10
)

// Server is what is asked of an xds.DiscoveryServer.
type Server interface {
	Propagation() *xds.Propagation
	Moves() int64
}

// Reporter writes down what this server knows of its proxies.
type Reporter struct {
	// ID is the server's, which no other has, also none before it.
	ID     string
	Client *clientv3.Client
	Store  *etcd.Store
	Side   *side.Cache
	Server Server
	Logger *slog.Logger

	lease   clientv3.LeaseID
	alive   <-chan *clientv3.LeaseKeepAliveResponse // closed when the lease is lost
	written []byte                                  // the report, under this lease

	moves int64                   // of the server when a report was last made
	met   bool                    // the known proxies were right then
	nodes []string                // connected when the known proxies were last looked at
	known pmap.Map[*status.Proxy] // as it was then
}

// Run reports until ctx ends, and then takes the report back and returns nil. What
// goes wrong is tried again.
func (r *Reporter) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	defer r.withdraw(ctx)
	for failed := ""; ; {
		err := r.report(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && err.Error() != failed {
			r.Logger.Warn("what proxies have taken is not reported to the other servers, it will be tried again", "err", err)
		}
		if failed = ""; err != nil {
			failed = err.Error()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		r.wait(ctx)
	}
}

// wait has a change that is under way pass, for no longer than the interval.
func (r *Reporter) wait(ctx context.Context) {
	for moves, end := r.moves, time.Now().Add(interval); ctx.Err() == nil && time.Now().Before(end); {
		last := moves
		if moves = r.Server.Moves(); moves == last {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// report writes what has changed since the last one.
func (r *Reporter) report(ctx context.Context) error {
	moves := r.Server.Moves() // before what they lead to
	if r.written != nil && r.met && moves == r.moves && r.knows() {
		return r.hold(ctx)
	}
	p := r.Server.Propagation()
	if p.Published == 0 {
		return nil
	}
	value, err := etcd.EncodeReplica(p.Report(r.ID, maxTroubles))
	if err != nil {
		return err
	}
	if err := r.hold(ctx); err != nil {
		return err
	}
	if !bytes.Equal(value, r.written) {
		if _, err := r.Store.WriteSide(ctx, []etcd.SideWrite{{Key: etcd.ReplicaKey(r.ID), Value: value, Lease: r.lease, Revision: etcd.Any}}); err != nil {
			return err
		}
		r.written = value
	}
	r.moves = moves
	r.met, err = r.meet(ctx, p)
	return err
}

// knows says whether the known proxies are those that were last looked at.
func (r *Reporter) knows() bool {
	facts, _ := r.Side.Facts()
	return facts != nil && facts.Proxies == r.known
}

// hold sees to it that there is a lease.
func (r *Reporter) hold(ctx context.Context) error {
	for r.alive != nil {
		select {
		case _, ok := <-r.alive:
			if ok {
				continue
			}
			r.alive, r.written = nil, nil
		default:
			return nil
		}
	}
	call, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	granted, err := r.Client.Grant(call, leaseTTL)
	if err != nil {
		return fmt.Errorf("get a lease: %w", err)
	}
	if r.alive, err = r.Client.KeepAlive(ctx, granted.ID); err != nil {
		return fmt.Errorf("keep a lease: %w", err)
	}
	r.lease, r.written = granted.ID, nil
	return nil
}

// withdraw takes the report back, so that nobody waits for a server that has
// stopped.
func (r *Reporter) withdraw(ctx context.Context) {
	if r.lease == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), interval)
	defer cancel()
	if _, err := r.Client.Revoke(ctx, r.lease); err != nil {
		r.Logger.Debug("the report of this server stands until its lease ends", "err", err)
	}
}

// meet writes down which proxies came and went; false where more is to be done.
func (r *Reporter) meet(ctx context.Context, p *xds.Propagation) (bool, error) {
	facts, _ := r.Side.Facts()
	if facts == nil {
		return false, nil
	}
	var nodes []string
	for node := range p.Nodes() {
		nodes = append(nodes, node)
	}
	if slices.Equal(nodes, r.nodes) && facts.Proxies == r.known {
		return true, nil
	}
	writes, err := r.encounters(p, facts)
	if err != nil {
		return false, err
	}
	batches := 0
	for batch := range slices.Chunk(writes, etcd.SideBatch) {
		if batches++; batches > maxBatches {
			return false, nil // the rest at the next look
		}
		// Where another server was faster nothing is written, and the next look sees it.
		if _, err := r.Store.WriteSide(ctx, batch); err != nil {
			return false, err
		}
	}
	r.nodes, r.known = nodes, facts.Proxies
	return true, nil
}

// encounters are the changes that make what is known of proxies right: those that
// are here, and those that were here last and are gone.
func (r *Reporter) encounters(p *xds.Propagation, facts *side.Facts) ([]etcd.SideWrite, error) {
	var writes []etcd.SideWrite
	var faults []error
	put := func(proxy *status.Proxy, revision int64) {
		value, err := etcd.EncodeProxy(proxy)
		faults = append(faults, err)
		writes = append(writes, etcd.SideWrite{Key: etcd.ProxyKey(proxy.Node), Value: value, Revision: revision})
	}
	here := map[string]bool{}
	for node, since := range p.Nodes() {
		here[node] = true
		switch known := knownProxy(facts, node); {
		case known == nil:
			put(&status.Proxy{Node: node, Replica: r.ID, Seen: since}, 0)
		case known.Replica != r.ID && (!alive(facts, known.Replica) || since.After(known.Seen)):
			put(&status.Proxy{Node: node, Replica: r.ID, Seen: since}, known.Revision)
		}
	}
	for known := range facts.Proxies.Values() {
		if known.Replica == r.ID && !here[known.Node] {
			put(&status.Proxy{Node: known.Node, Seen: time.Now()}, known.Revision)
		}
	}
	return writes, errors.Join(faults...)
}

func knownProxy(facts *side.Facts, node string) *status.Proxy {
	return facts.Proxies.Value(etcd.ProxyKey(node)[len(etcd.ProxyPrefix):])
}

// alive says whether a server is.
func alive(facts *side.Facts, replica string) bool {
	_, ok := facts.Replicas.Get(etcd.ReplicaKey(replica)[len(etcd.ReplicaPrefix):])
	return ok && replica != ""
}
