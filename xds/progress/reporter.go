package progress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache/beside"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/pulse"
	"github.com/portolan-mesh/portolan/storage/status"
)

const (
	// interval is how often a Reporter, and a Writer, look whether there is something to
	// write.
	interval = time.Second
	// pause is how long ChangeCount must stand still before a look. A look goes over all
	// proxies, and would hold up a change on its way to them.
	pause = interval / 10
	// leaseTTL is how many seconds a report outlives its server.
	leaseTTL = 15
	// maxProblems bounds the proxies that a report names.
	maxProblems = 16
	// maxBatches bounds the transactions of one look.
	maxBatches = 10
	// partsBatch is how many parts of the objects in use one transaction writes. With
	// 100,000 objects these are 200 KB.
	partsBatch = 8
)

// Server is the part of xds.DiscoveryServer that this package uses.
type Server interface {
	Progress() *Snapshot
	UsedObjects() [status.UseParts][]uint64
	ChangeCount() int64
}

// Reporter stores what this server knows of its proxies, for the other servers.
type Reporter struct {
	// ID names the server. No other server has it, nor had it before.
	ID string
	// API is HOST:PORT of the server's config API.
	API      string
	Client   *clientv3.Client
	Store    *etcd.Store
	Statuses *statuses.Cache
	Server   Server
	// Beside reports the sources other than the store.
	Beside *beside.Sources
	Logger *slog.Logger

	lease     clientv3.LeaseID
	keepAlive <-chan *clientv3.LeaseKeepAliveResponse // closed when the lease is lost
	written   map[string]any                          // what was written under this lease, by key

	// ChangeCount and the known proxies when the known proxies were last up to date.
	lastCount int64
	lastKnown pmap.Map[*status.Proxy]
}

// Run reports until ctx ends, then withdraws the report and returns nil. It retries
// after errors.
func (r *Reporter) Run(ctx context.Context) error {
	timer := time.NewTimer(pulse.Until(interval))
	defer timer.Stop()
	defer r.withdraw(ctx)
	for failed := ""; ; {
		// The content of sources is read before the progress, and written after it: whoever
		// reads that a server has an object, finds what its proxies did since.
		sources := r.Beside.Report(r.ID)
		facts, _ := r.Statuses.Facts()
		r.Beside.Compare(r.ID, sources, facts, time.Now(), r.Logger)
		err := r.report(ctx)
		if err == nil {
			err = r.writeSources(ctx, sources)
		}
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
		case <-timer.C:
			timer.Reset(pulse.Until(interval))
		}
		r.waitForQuiet(ctx)
	}
}

// waitForQuiet waits until a change under way has passed, for at most interval.
func (r *Reporter) waitForQuiet(ctx context.Context) {
	for count, end := r.lastCount, time.Now().Add(interval); ctx.Err() == nil && time.Now().Before(end); {
		last := count
		if count = r.Server.ChangeCount(); count == last {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// report writes what has changed since the last report.
func (r *Reporter) report(ctx context.Context) error {
	count := r.Server.ChangeCount() // read before the progress that it counts
	if r.written[etcd.ReplicaKey(r.ID)] != nil && count == r.lastCount && r.proxiesUnchanged() {
		return r.keepLease(ctx)
	}
	p := r.Server.Progress()
	if p.Published == 0 {
		return nil
	}
	own := p.Report(r.ID, maxProblems)
	own.API = r.API
	if err := r.keepLease(ctx); err != nil {
		return err
	}
	// The objects in use go first, and are read after the progress: whoever reads that all
	// proxies have a change, knows what they use with it.
	if err := r.writeUsed(ctx, r.Server.UsedObjects()); err != nil {
		return err
	}
	value, err := etcd.EncodeReplica(own)
	if err != nil {
		return err
	}
	if err := write(ctx, r, map[string]string{etcd.ReplicaKey(r.ID): string(value)}, asItIs, etcd.ReplicaPrefix); err != nil {
		return err
	}
	if done, err := r.storeProxies(ctx, p); err != nil || !done {
		return err
	}
	r.lastCount = count
	return nil
}

// writeUsed writes the objects in use.
func (r *Reporter) writeUsed(ctx context.Context, used [status.UseParts][]uint64) error {
	parts := map[string]string{}
	for part, ids := range used {
		if len(ids) > 0 {
			value, err := etcd.EncodeUse(&status.Use{Replica: r.ID, Part: part, Objects: ids})
			if err != nil {
				return err
			}
			parts[etcd.UseKey(r.ID, part)] = string(value)
		}
	}
	return write(ctx, r, parts, asItIs, etcd.UsePrefix)
}

// write makes the values under a prefix those that are given, by key, as far as they differ
// from what was written under the lease. Equal values are encoded equally.
func write[V comparable](ctx context.Context, r *Reporter, values map[string]V, encode func(V) ([]byte, error), prefix string) error {
	var keys []string
	for key, value := range values {
		if r.written[key] != any(value) {
			keys = append(keys, key)
		}
	}
	for key := range r.written {
		if _, stays := values[key]; !stays && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for some := range slices.Chunk(keys, partsBatch) {
		writes := make([]etcd.SideWrite, len(some))
		for i, key := range some {
			writes[i] = etcd.SideWrite{Key: key, Lease: r.lease, Revision: etcd.Any} // deletes
			if value, stays := values[key]; stays {
				var err error
				if writes[i].Value, err = encode(value); err != nil {
					return err
				}
			}
		}
		if _, err := r.Store.WriteSide(ctx, writes); err != nil {
			return err
		}
		for _, key := range some {
			if value, stays := values[key]; stays {
				r.written[key] = value
			} else {
				delete(r.written, key)
			}
		}
	}
	return nil
}

// asItIs is the encoding of what is encoded already.
func asItIs(value string) ([]byte, error) { return []byte(value), nil }

// writeSources writes a report of sources other than the store. The contents go first: a
// source is said to be complete with what there is.
func (r *Reporter) writeSources(ctx context.Context, due beside.Report) error {
	if r.lease == 0 {
		return nil
	}
	if err := write(ctx, r, due.Contents, etcd.EncodeContent, etcd.ContentPrefix); err != nil {
		return err
	}
	value, err := etcd.EncodeSources(&status.Sources{Replica: r.ID, States: due.States})
	if err != nil {
		return err
	}
	return write(ctx, r, map[string]string{etcd.SourcesKey(r.ID): string(value)}, asItIs, etcd.SourcesPrefix)
}

// proxiesUnchanged says whether the known proxies are the same as at the last look.
func (r *Reporter) proxiesUnchanged() bool {
	facts, _ := r.Statuses.Facts()
	return facts != nil && facts.Proxies == r.lastKnown
}

// keepLease makes sure that there is a lease.
func (r *Reporter) keepLease(ctx context.Context) error {
	for r.keepAlive != nil {
		select {
		case _, ok := <-r.keepAlive:
			if ok {
				continue
			}
			r.keepAlive, r.written = nil, map[string]any{}
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
	if r.keepAlive, err = r.Client.KeepAlive(ctx, granted.ID); err != nil {
		return fmt.Errorf("keep a lease: %w", err)
	}
	r.lease, r.written = granted.ID, map[string]any{}
	return nil
}

// withdraw deletes the report, so that nobody waits for a server that has stopped.
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

// storeProxies stores which proxies came and went; false if some are left for the next look.
func (r *Reporter) storeProxies(ctx context.Context, p *Snapshot) (bool, error) {
	facts, _ := r.Statuses.Facts()
	if facts == nil {
		return false, nil
	}
	writes, err := r.proxyWrites(p, facts)
	if err != nil {
		return false, err
	}
	batches := 0
	for batch := range slices.Chunk(writes, etcd.SideBatch) {
		if batches++; batches > maxBatches {
			return false, nil // the rest at the next look
		}
		// If another server was faster, nothing is written, and the next look sees its
		// write.
		if _, err := r.Store.WriteSide(ctx, batch); err != nil {
			return false, err
		}
	}
	r.lastKnown = facts.Proxies
	return true, nil
}

// proxyWrites returns the writes that update the known proxies: those that are connected
// to this server, and those that were and have left.
func (r *Reporter) proxyWrites(p *Snapshot, facts *statuses.Facts) ([]etcd.SideWrite, error) {
	var writes []etcd.SideWrite
	var faults []error
	put := func(proxy *status.Proxy, revision int64) {
		value, err := etcd.EncodeProxy(proxy)
		faults = append(faults, err)
		writes = append(writes, etcd.SideWrite{Key: etcd.ProxyKey(proxy.Node), Value: value, Revision: revision})
	}
	here := map[string]bool{}
	for _, proxy := range p.proxies {
		here[proxy.ID] = true
		switch known := knownProxy(facts, proxy.ID); {
		case known == nil:
			put(r.present(proxy), 0)
		case known.Replica == r.ID && (known.Seen.Equal(proxy.Since) || known.Like(r.present(proxy))): // it is known as it is
		case known.Replica == r.ID, liveServer(facts, known.Replica) == nil, proxy.Since.After(known.Seen):
			put(r.present(proxy), known.Revision)
		}
	}
	for known := range facts.Proxies.Values() {
		if known.Replica == r.ID && !here[known.Node] {
			put(parted(known, time.Now()), known.Revision)
		}
	}
	return writes, errors.Join(faults...)
}

// present describes a proxy that is connected to this server.
func (r *Reporter) present(p Proxy) *status.Proxy {
	return &status.Proxy{
		Node: p.ID, Replica: r.ID, Seen: p.Since,
		Type: string(p.Type), Namespace: p.Namespace, Addresses: p.IPAddresses, Labels: p.Labels(nil), SelfDiscovery: p.SelfDiscovery,
		Interception: string(p.InterceptionMode), DNSCapture: p.DNSCapture, Locality: p.Locality, Identity: p.Identity,
	}
}

// parted describes a known proxy that is connected to no server since a time.
func parted(known *status.Proxy, since time.Time) *status.Proxy {
	out := *known
	out.Replica, out.Seen = "", since
	return &out
}

func knownProxy(facts *statuses.Facts, node string) *status.Proxy {
	return facts.Proxies.Value(etcd.ProxyKey(node)[len(etcd.ProxyPrefix):])
}

// liveServer returns the report of a server, nil for one that does not run.
func liveServer(facts *statuses.Facts, id string) *status.Replica {
	return facts.Replicas.Value(etcd.ReplicaKey(id)[len(etcd.ReplicaPrefix):])
}
