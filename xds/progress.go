package xds

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/desired"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// updateNote notes how far the client has come, for other goroutines.
func (c *Connection) updateNote() {
	if c.proxy == nil {
		return
	}
	now, aggregated := time.Now(), c.wire.only == ""
	for i := range c.served { // a type after those that cause its requests
		t, idle := c.types[i], c.sequencer.Idle(i)
		if t.Unchanged(idle) {
			continue
		}
		turn := progress.Turn{
			Now: now, Idle: idle, LastRevision: c.note.Revision(),
			Expecting: aggregated && c.sequencer.ExpectsSubscription(t.url, now), Stuck: c.sequencer.OnlyKeptRemovals(t.url),
		}
		for _, needing := range c.served[i].needing {
			if latest := c.typeState(needing).Latest(); latest.To > turn.Cause.To {
				turn.Cause = latest
			}
		}
		t.Follow(t.subscription, turn, origins{c.desired, i}.objectsOf)
		t.Held, t.Kept = c.sequencer.Waiting(t.url)
		c.logRejections(t)
	}
	c.note.Write(c.sequencer.Revision(), c.generation, len(c.served), func(place int) *progress.Type { return &c.types[place].Type })
}

// Proxies returns the status of each stream of the connected proxies, and of the control
// planes that take objects. They are ordered by node id, the oldest stream of a node first.
func (s *DiscoveryServer) Proxies() []progress.ProxyStatus {
	var out []progress.ProxyStatus
	for _, proxy := range s.streamsOf(nil) {
		out = append(out, proxy.Status())
	}
	slices.SortFunc(out, func(a, b progress.ProxyStatus) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), a.ConnectedSince.Compare(b.ConnectedSince))
	})
	return out
}

func isProxy(p *discovery.Proxy) bool { return p.Type != discovery.ConfigClient }

// streamsOf returns how far each stream has come of the clients that which accepts; nil
// accepts all.
func (s *DiscoveryServer) streamsOf(which func(*discovery.Proxy) bool) []progress.Proxy {
	connections := s.all()
	out := make([]progress.Proxy, 0, len(connections))
	for _, c := range connections {
		if p, ok := c.note.Read(); ok && (which == nil || which(p.Proxy)) {
			p.Since, p.Variant, p.ProofEnds, p.Traffic = c.since, c.wire.variant, c.admitted.ProofEnds(), c.transcript.Load().Traffic()
			out = append(out, p)
		}
	}
	return out
}

// Nodes returns the connected proxies, ordered by node id, each once. Control planes that
// take objects are not among them.
func (s *DiscoveryServer) Nodes() []*discovery.Proxy { return s.nodes(isProxy) }

// Clients returns the connected proxies and control planes, ordered by node id, each once.
func (s *DiscoveryServer) Clients() []*discovery.Proxy { return s.nodes(nil) }

func (s *DiscoveryServer) nodes(which func(*discovery.Proxy) bool) []*discovery.Proxy {
	var out []*discovery.Proxy
	for _, p := range s.streamsOf(which) {
		out = append(out, p.Proxy)
	}
	slices.SortStableFunc(out, func(a, b *discovery.Proxy) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(out, func(a, b *discovery.Proxy) bool { return a.ID == b.ID })
}

// ChangeCount changes whenever the results of Progress or UsedObjects may have changed.
// Callers that poll compare it to learn that nothing has happened.
func (s *DiscoveryServer) ChangeCount() int64 {
	return s.changeCount.Load() + s.desired.Uses().ChangeCount()
}

// UsedObjects returns the ids of the objects that the resources of connected proxies are
// made of. They are in order, and divided into parts.
func (s *DiscoveryServer) UsedObjects() [status.UseParts][]uint64 {
	return s.desired.Uses().Objects()
}

// Progress returns how far revisions have come among the connected proxies.
func (s *DiscoveryServer) Progress() *progress.Tally {
	began := s.idlePatches.push.Load()
	changes, published, generation := s.changes.Last(), s.Context().Revision(), s.generations.number.Load() // read first: the streams may be newer, never older
	out := progress.NewTally(published, generation, changes, s.streamsOf(isProxy), unbuilt(s.desired.Failures(), published), s.departures.Nodes())
	out.FailedPatches, out.IdlePatches = s.desired.FailedPatches(), s.idlePatches.follow(s.desired, began, out.Settled())
	out.MissingModules = missingModules(began, s.Context())
	return out
}

// missingModules returns the WasmPlugins whose module is not in the newest context, or not yet in that
// of the newest push that has its number: the progress of proxies does not tell of such a module.
func missingModules(pushed, newest *mesh.PushContext) (out []status.MissingModule) {
	for path, c := range newest.Inputs().Modules.Lacking() {
		out = append(out, status.MissingModule{Plugin: path, Fault: newest.Inputs().Modules.Fault(c)})
	}
	for path := range pushed.Inputs().Modules.Lacking() {
		if !slices.ContainsFunc(out, func(m status.MissingModule) bool { return m.Plugin == path }) {
			out = append(out, status.MissingModule{Plugin: path})
		}
	}
	return out
}

// idlePatches are the patches of EnvoyFilters that match nothing, as of the last look. It is safe for
// concurrent use.
type idlePatches struct {
	// push is the context of the newest push that has its number.
	push atomic.Pointer[mesh.PushContext]

	mu sync.Mutex // guards the fields below
	at idleAt
	is []status.IdlePatch
}

// idleAt is all that idle patches follow from.
type idleAt struct {
	push    *mesh.PushContext
	uses    int64
	settled bool
}

// follow returns the patches of a context that match nothing now. It looks only if something has
// changed. settled says that all proxies have come to the context, or a later one.
func (p *idlePatches) follow(groups *desired.Groups, push *mesh.PushContext, settled bool) []status.IdlePatch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := (idleAt{push, groups.Uses().ChangeCount(), settled}); push != nil && at != p.at {
		p.at, p.is = at, groups.IdlePatches(push, settled, p.is)
	}
	return p.is
}

// unbuilt returns a problem for each resource that could not be built. It names no
// proxy, since the server itself rejects the resource.
func unbuilt(failures []desired.Failure, revision int64) []status.Problem {
	out := make([]status.Problem, 0, len(failures))
	for _, f := range failures {
		out = append(out, status.Problem{
			Type: f.Type, Since: f.Since, Rejected: true, RejectedRevision: revision,
			Message: progress.Shorten(f.Name+": "+f.Message, progress.MaxMessage), Objects: f.Objects,
		})
	}
	return out
}
