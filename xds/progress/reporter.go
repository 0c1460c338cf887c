package progress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-multierror"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache/beside"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/pulse"
	"github.com/portolan-mesh/portolan/storage/retry"
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
	// maxRegistrations bounds the registrations that a report names.
	maxRegistrations = 32
	// maxProxies bounds the known proxies that one look writes.
	maxProxies = 10 * etcd.SideBatch
	// partsBatch is how many parts of the objects in use one transaction writes. With
	// 100,000 objects these are 200 KB.
	partsBatch = 8
)

// Server is the part of xds.DiscoveryServer that this package uses.
type Server interface {
	Progress() *Tally
	UsedObjects() [status.UseParts][]uint64
	ChangeCount() int64
}

// Registrations is the part of registration.Registrar that this package uses.
type Registrations interface {
	// Report names at most so many registrations that went wrong, in a fixed order.
	Report(limit int) []status.Registration
	// ChangeCount changes whenever Report may have changed.
	ChangeCount() int64
}

// Reporter stores what this server knows of its proxies, for the other servers.
type Reporter struct {
	// ID names the server. No other server has it, nor had it before.
	ID string
	// API is the URL of the server's config API.
	API string
	// Former says of another server whether it is known to have ended; nil knows of none. Run
	// withdraws the reports of such servers, so that nobody counts their proxies twice.
	Former   func(id string) bool
	Client   *clientv3.Client
	Board    Board
	Statuses *statuses.Cache
	Server   Server
	// Registrations reports what became of the proxies that asked to be registered; nil reports
	// none.
	Registrations Registrations
	// Beside reports the sources other than the store.
	Beside *beside.Sources
	Logger *slog.Logger

	lease     clientv3.LeaseID
	keepAlive <-chan *clientv3.LeaseKeepAliveResponse // closed when the lease is lost
	written   map[string]any                          // the values that were written under this lease, by key

	rows []row // of the progress, as of the last look; nil before
	// ChangeCount and the known proxies when the known proxies were last up to date.
	lastCount int64
	lastKnown pmap.Map[*status.Proxy]
}

// row is an entry that is in etcd while the server runs.
type row struct {
	key   string
	value any // a string or a *status.Content; nil to delete the key
}

func (r row) encode() ([]byte, error) {
	if content, ok := r.value.(*status.Content); ok {
		return etcd.EncodeContent(content)
	}
	return []byte(r.value.(string)), nil
}

// Run reports until ctx ends, then withdraws the report and returns nil. It retries
// after errors.
func (r *Reporter) Run(ctx context.Context) error {
	defer r.withdraw(ctx)
	if err := r.withdrawFormer(ctx); err != nil && ctx.Err() == nil {
		r.Logger.Warn("the reports of servers that have ended stand until their leases end", "err", err)
	}
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
		if retry.Sleep(ctx, pulse.Until(interval)) != nil {
			return nil
		}
		r.waitForQuiet(ctx)
	}
}

// waitForQuiet waits until a change under way has passed, for at most interval.
func (r *Reporter) waitForQuiet(ctx context.Context) {
	last, end := r.lastCount, time.Now().Add(interval)
	for time.Now().Before(end) {
		count := r.changeCount()
		if count == last || retry.Sleep(ctx, pause) != nil {
			return
		}
		last = count
	}
}

// report writes what has changed since the last report.
func (r *Reporter) report(ctx context.Context) error {
	// Read the content of sources before the progress, and write it after: a reader that
	// finds an object on a server then also finds what its proxies did since.
	sources := r.Beside.Report(r.ID)
	facts, _ := r.Statuses.Reports()
	r.Beside.Compare(r.ID, sources, facts, time.Now(), r.Logger)
	others, err := sourceRows(r.ID, sources)
	if err != nil {
		return err
	}
	var p *Tally
	count := r.changeCount() // read before the progress that it counts
	if r.rows == nil || count != r.lastCount || facts == nil || facts.Proxies != r.lastKnown {
		if p = r.Server.Progress(); p.Published == 0 {
			return nil
		}
		if r.rows, err = r.progressRows(p); err != nil {
			return err
		}
	}
	if err := r.keepLease(ctx); err != nil {
		return err
	}
	if err := r.write(ctx, slices.Concat(r.rows, others)); err != nil || p == nil || facts == nil {
		return err
	}
	if done, err := r.storeProxies(ctx, p, facts); err != nil || !done {
		return err
	}
	r.lastCount, r.lastKnown = count, facts.Proxies
	return nil
}

func (r *Reporter) changeCount() int64 {
	count := r.Server.ChangeCount()
	if r.Registrations != nil {
		count += r.Registrations.ChangeCount()
	}
	return count
}

// progressRows returns the rows of the objects in use, and then the row of the report. It
// reads the objects in use after the progress, and they are written first. So a reader that
// finds a change on all proxies also finds the objects that they use with it.
func (r *Reporter) progressRows(p *Tally) ([]row, error) {
	report := p.Report(r.ID, maxProblems)
	report.API = r.API
	if r.Registrations != nil {
		report.Registrations = r.Registrations.Report(maxRegistrations)
	}
	var rows []row
	for part, ids := range r.Server.UsedObjects() {
		if len(ids) > 0 {
			value, err := etcd.EncodeUse(&status.Use{Replica: r.ID, Part: part, Objects: ids})
			if err != nil {
				return nil, err
			}
			rows = append(rows, row{etcd.UseKey(r.ID, part), string(value)})
		}
	}
	value, err := etcd.EncodeReplica(report)
	return append(rows, row{etcd.ReplicaKey(r.ID), string(value)}), err
}

// sourceRows returns the rows of a report of sources other than the store. The contents go
// first: when a reader finds a source complete, its contents are there.
func sourceRows(id string, report beside.Report) ([]row, error) {
	var rows []row
	for _, key := range slices.Sorted(maps.Keys(report.Contents)) {
		rows = append(rows, row{key, report.Contents[key]})
	}
	value, err := etcd.EncodeSources(&status.Sources{Replica: id, States: report.States})
	return append(rows, row{etcd.SourcesKey(id), string(value)}), err
}

// write makes the entries under the lease equal to rows: it deletes the entries that are
// not among them, and then writes the rows that have changed, in their order.
func (r *Reporter) write(ctx context.Context, rows []row) error {
	gone := maps.Clone(r.written)
	for _, one := range rows {
		delete(gone, one.key)
	}
	var changed []row
	for _, key := range slices.Sorted(maps.Keys(gone)) {
		changed = append(changed, row{key: key})
	}
	for _, one := range rows {
		if r.written[one.key] != one.value {
			changed = append(changed, one)
		}
	}
	for some := range slices.Chunk(changed, partsBatch) {
		writes := make([]etcd.SideWrite, len(some))
		for i, one := range some {
			writes[i] = etcd.SideWrite{Key: one.key, Lease: r.lease, Revision: etcd.Any}
			if one.value != nil {
				var err error
				if writes[i].Value, err = one.encode(); err != nil {
					return err
				}
			}
		}
		switch done, err := r.Board.WriteSide(ctx, writes); {
		case err != nil:
			return err
		case !done:
			return errors.New("the storage format has just changed")
		}
		for _, one := range some {
			if r.written[one.key] = one.value; one.value == nil {
				delete(r.written, one.key)
			}
		}
	}
	return nil
}

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

// withdrawFormer deletes the reports of servers that are known to have ended.
func (r *Reporter) withdrawFormer(ctx context.Context) error {
	if r.Former == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	reports, err := r.Client.Get(ctx, etcd.ReplicaPrefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	var faults *multierror.Error
	for _, kv := range reports.Kvs {
		of, err := etcd.DecodeReplica(kv)
		if err != nil || of.ID == r.ID || !r.Former(of.ID) {
			continue
		}
		if _, err := r.Client.Revoke(ctx, clientv3.LeaseID(kv.Lease)); err != nil {
			faults = multierror.Append(faults, fmt.Errorf("the report of %s: %w", of.ID, err))
		}
	}
	return faults.ErrorOrNil()
}

// storeProxies stores which proxies came and went; false if some are left for the next look.
func (r *Reporter) storeProxies(ctx context.Context, p *Tally, facts *statuses.Reports) (done bool, err error) {
	writes, err := r.proxyWrites(p, facts)
	if err != nil {
		return false, err
	}
	now := writes[:min(len(writes), maxProxies)]
	for batch := range slices.Chunk(now, etcd.SideBatch) {
		// If another server was faster, nothing is written, and the next look sees its
		// write.
		if _, err := r.Board.WriteSide(ctx, batch); err != nil {
			return false, err
		}
	}
	return len(now) == len(writes), nil
}

// proxyWrites returns the writes that update the known proxies: those that are connected
// to this server, and those that were and have left.
func (r *Reporter) proxyWrites(p *Tally, facts *statuses.Reports) ([]etcd.SideWrite, error) {
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
		case known.Replica == r.ID && (known.Seen.Equal(proxy.Since) || known.Like(r.present(proxy))): // its entry is up to date
		case known.Replica == r.ID, liveServer(facts, known.Replica) == nil, proxy.Since.After(known.Seen):
			put(r.present(proxy), known.Revision)
		}
	}
	for known := range facts.Proxies.Values() {
		if known.Replica == r.ID && !here[known.Node] {
			_, departed := p.departed[known.Node]
			put(parted(known, time.Now(), departed), known.Revision)
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
		Certified: p.HasCertificate(),
	}
}

// parted describes a known proxy that is connected to no server since a time; departed says that its
// machine had said so before.
func parted(known *status.Proxy, since time.Time, departed bool) *status.Proxy {
	out := *known
	out.Replica, out.Seen, out.Departed = "", since, departed
	return &out
}

func knownProxy(facts *statuses.Reports, node string) *status.Proxy {
	return facts.Proxies.Value(etcd.ProxyKey(node)[len(etcd.ProxyPrefix):])
}

// liveServer returns the report of a server, nil for one that does not run.
func liveServer(facts *statuses.Reports, id string) *status.Replica {
	return facts.Replicas.Value(etcd.ReplicaKey(id)[len(etcd.ReplicaPrefix):])
}
