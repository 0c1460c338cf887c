package serve

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/pulse"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/progress"
)

const (
	// phaseInterval is how often the leader looks whether the proxies have taken a phase, and
	// phaseLimit how long it waits for them.
	phaseInterval = 500 * time.Millisecond
	phaseLimit    = time.Minute
)

// phaseMover moves namespaces from some PeerAuthentications to others: a phase ends when all
// connected proxies have taken it, or after phaseLimit.
type phaseMover struct {
	store    *etcd.Store
	push     func() *mesh.PushContext
	progress func() *progress.View
	logger   *slog.Logger

	begun map[string]begunPhase // by namespace
}

// begunPhase is a phase of a namespace that was seen at a time, when this revision was published.
type begunPhase struct {
	phase    peer.Phase
	digest   string
	at       time.Time
	revision int64
}

// run implements job.
func (m *phaseMover) run(ctx context.Context, leader *election.Leader) error {
	store := m.store.Fenced(leader.Client())
	m.begun = map[string]begunPhase{}
	ctx = storage.WithOrigin(ctx, storage.Origin{User: "portolan", Message: "the proxies have taken the phase"})
	var last *mesh.PushContext
	for {
		if push := m.push(); push != last || len(m.begun) > 0 {
			last = push
			if err := m.move(ctx, store, push); ctx.Err() != nil || errors.Is(err, election.ErrNotLeader) {
				return nil
			}
		}
		if retry.Sleep(ctx, pulse.Until(phaseInterval)) != nil {
			return nil
		}
	}
}

// move writes the next phase of each namespace whose proxies have taken the present one.
func (m *phaseMover) move(ctx context.Context, store *etcd.Store, push *mesh.PushContext) error {
	seen := map[string]bool{}
	for namespace, policies := range push.PeerChanges() {
		seen[namespace] = true
		now := begunPhase{phase: policies.Phase(), digest: policies.Digest()}
		was := m.begun[namespace]
		if was.phase != now.phase || was.digest != now.digest || was.at.IsZero() {
			now.at, now.revision = time.Now(), push.Revision()
			m.begun[namespace], was = now, now
		}
		late := time.Since(was.at) >= phaseLimit
		if now.phase != peer.Settled && !late && !m.taken(was.revision) {
			continue
		}
		if late {
			m.logger.Warn("a phase of PeerAuthentications ends, though not all proxies have taken it", "namespace", namespace, "after", phaseLimit)
		}
		if err := writePhase(ctx, store, namespace, policies); err != nil {
			if !errors.Is(err, election.ErrNotLeader) && ctx.Err() == nil {
				m.logger.Warn("a phase of PeerAuthentications was not written, it will be tried again", "namespace", namespace, "err", err)
			}
			return err
		}
		delete(m.begun, namespace)
	}
	for namespace := range m.begun {
		if !seen[namespace] {
			delete(m.begun, namespace)
		}
	}
	return nil
}

// taken says whether all connected proxies have everything up to a revision.
func (m *phaseMover) taken(revision int64) bool {
	d := m.progress().Of(revision, true)
	return d.Waiting == 0 && len(d.Behind) == 0
}

// writePhase writes the phase after the present one. A namespace without policies has no
// PeerPhase in the end.
func writePhase(ctx context.Context, store *etcd.Store, namespace string, policies *peer.Policies) error {
	key := config.Key{Kind: schema.PeerPhase, Namespace: namespace, Name: schema.PeerPhaseName}
	next := policies.Next()
	if len(next.Settled) == 0 && next.Toward == "" {
		if _, err := store.Delete(ctx, key.Kind, key.Name, key.Namespace, ""); err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		return nil
	}
	object := &config.Config{Meta: config.Meta{GroupVersionKind: key.Kind, Namespace: namespace, Name: key.Name}, Spec: next}
	_, _, err := store.Apply(ctx, []storage.Op{{Verb: storage.Put, Config: object}})
	return err
}

// phaseWords are the phases in which proxies do not follow the newest policies.
var phaseWords = map[peer.Phase]string{peer.ServersChange: "servers take both", peer.ClientsChange: "clients change"}

// phasesOf returns the namespaces that are on the way, in words.
func phasesOf(push *mesh.PushContext) []string {
	var out []string
	for namespace, policies := range push.PeerChanges() {
		if words := phaseWords[policies.Phase()]; words != "" {
			out = append(out, namespace+": "+words)
		}
	}
	return out
}
