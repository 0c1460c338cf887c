package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/retry"
)

const (
	// lookInterval is how often the parent checks the members.
	lookInterval = time.Second
	// electionPatience is how long a quorum of members may be without a leader before
	// writes are refused: it elects one meanwhile.
	electionPatience = 3 * time.Second
)

// peers are the members of a cluster, this server's own among them, as the server sees
// them. It points clients at the members that serve, so that a server works while its
// own member does not.
type peers struct {
	ownURL string // the client URL of this server's member
	roster *cluster.Roster
	logger *slog.Logger
	seen   atomic.Pointer[clusterState] // nil before the first look
	calls  *dial.Calls                  // calls of the clients

	mu        sync.Mutex // guards what follows
	clients   []*clientv3.Client
	endpoints []string // the present endpoints of the clients
}

// A clusterState is the result of a look at the cluster.
type clusterState struct {
	view *cluster.Membership // nil while no member has ever answered
	err  error               // why, if view is nil
	// leaderless is since when no member serves; zero while one does.
	leaderless time.Time
}

func newPeers(c *Cluster, roster *cluster.Roster, logger *slog.Logger) *peers {
	return &peers{ownURL: c.ClientURL, roster: roster, logger: logger, endpoints: []string{c.ClientURL}, calls: &dial.Calls{}}
}

// addClient adds a client, which is to call the members that serve.
func (p *peers) addClient(client *clientv3.Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients = append(p.clients, client)
	client.SetEndpoints(p.endpoints...)
}

// run looks at the members until ctx ends.
func (p *peers) run(ctx context.Context) {
	for {
		p.poll(ctx)
		if retry.Sleep(ctx, lookInterval) != nil {
			return
		}
	}
}

// poll looks once.
func (p *peers) poll(ctx context.Context) {
	view, err := p.roster.Look(ctx)
	if ctx.Err() != nil {
		return
	}
	last := p.seen.Load()
	now := &clusterState{view: view, err: err}
	if now.view == nil || len(view.Serving()) == 0 {
		now.leaderless = time.Now()
		if last != nil && !last.leaderless.IsZero() {
			now.leaderless = last.leaderless
		}
	}
	p.logChanges(last, now)
	p.seen.Store(now)
	if view != nil {
		p.setEndpoints(view.Serving())
	}
	if now.unavailable() && !last.unavailable() {
		p.calls.Cut()
	}
}

// setEndpoints points the clients to the members that serve, their own first. If none serves,
// the endpoints stay. When the member that was first stops serving, calls to it are cut.
func (p *peers) setEndpoints(serving []cluster.Member) {
	var endpoints []string
	for _, m := range serving {
		if m.ClientURLs[0] == p.ownURL {
			endpoints = slices.Insert(endpoints, 0, p.ownURL)
			continue
		}
		endpoints = append(endpoints, m.ClientURLs[0])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(endpoints) == 0 || slices.Equal(endpoints, p.endpoints) {
		return
	}
	first := p.endpoints[0]
	home := endpoints[0] == p.ownURL && first != p.ownURL
	p.endpoints = endpoints
	for _, c := range p.clients {
		if home {
			// A client keeps its connection to a member as long as that member is among its
			// endpoints.
			c.SetEndpoints(p.ownURL)
		}
		c.SetEndpoints(endpoints...)
	}
	if !slices.Contains(endpoints, first) {
		p.calls.Cut()
	}
}

// logChanges logs the differences between two looks.
func (p *peers) logChanges(last, now *clusterState) {
	if now.view == nil {
		return
	}
	for _, m := range now.view.Silent() {
		if !last.silent(m.ID) && !slices.Contains(m.ClientURLs, p.ownURL) {
			p.logger.Warn("a member of the store does not answer", "member", m.String(), "url", strings.Join(m.ClientURLs, ","), "err", m.Err)
		}
	}
	for _, m := range now.view.Members {
		if m.Answer != nil && last.silent(m.ID) && !slices.Contains(m.ClientURLs, p.ownURL) {
			p.logger.Info("a member of the store answers again", "member", m.String())
		}
	}
	switch was, is := last.unavailable(), now.unavailable(); {
	case is && !was:
		p.logger.Error("the store takes no writes", "err", now.trouble())
	case was && !is:
		p.logger.Info("the store takes writes again")
	}
}

// silent says whether a member was known not to answer.
func (s *clusterState) silent(id uint64) bool {
	return s != nil && s.view != nil && slices.ContainsFunc(s.view.Silent(), func(m cluster.Member) bool { return m.ID == id })
}

// unavailable says whether the cluster is known to take no writes.
func (s *clusterState) unavailable() bool { return s != nil && s.view != nil && s.trouble() != nil }

// trouble is why nothing can be read or written; nil if it can, or soon will.
func (s *clusterState) trouble() error {
	switch {
	case s.leaderless.IsZero():
		return nil
	case s.view == nil:
		return errors.New(oneLine(s.err))
	}
	need, answer := s.view.Quorum(), 0
	var away []string
	for _, m := range s.view.Voters() {
		if m.Answer != nil {
			answer++
			continue
		}
		away = append(away, fmt.Sprintf("%s at %s (%v)", m.String(), strings.Join(m.ClientURLs, ","), m.Err))
	}
	switch {
	case answer < need:
		return fmt.Errorf("the store has no quorum: %d of its %d members answer, and %d are needed: waiting for the other members of the store: %s",
			answer, len(s.view.Voters()), need, strings.Join(away, ", "))
	case time.Since(s.leaderless) < electionPatience:
		return nil
	}
	return fmt.Errorf("the members of the store have been without a leader for %s: do they reach each other at their peer URLs?",
		time.Since(s.leaderless).Round(time.Second))
}

// unusable returns why nothing can be read or written, as of the last look.
func (p *peers) unusable() error {
	s := p.seen.Load()
	if s == nil {
		return errors.New("the members of the store are being looked for")
	}
	return s.trouble()
}

func (p *peers) everAnswered() bool {
	s := p.seen.Load()
	return s != nil && s.view != nil
}

// missingMembers returns which members are missing from a store that works.
func (p *peers) missingMembers() error {
	s := p.seen.Load()
	if s == nil || s.view == nil {
		return nil
	}
	silent := s.view.Silent()
	if len(silent) == 0 {
		return nil
	}
	return fmt.Errorf("writes succeed, and of the %d members of the store these do not answer: %s: bring them back, or replace them",
		len(s.view.Members), cluster.Names(silent))
}
