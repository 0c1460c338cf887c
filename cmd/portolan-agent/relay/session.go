package relay

import (
	"context"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/sync/errgroup"
)

// session is one stream of a client.
type session[Q request, P any] struct {
	relay   *Relay
	variant string
	down    stream[P, Q]
	book    book[Q, P]
	links   chan *link[Q, P]
	// kept makes a link to the last good configuration, nil if there is none.
	kept func() *link[Q, P]
	// own is the agent's own part of the stream, nil for none.
	own own[Q, P]
	// said is what the machine has said of itself. say makes the request that says so.
	say  func(*statement) Q
	said statements

	up *link[Q, P] // nil for none
	// silent is since when no server has answered.
	silent time.Time
	live   bool   // a server has answered
	saved  uint64 // book.changes() that the store has
	shown  *Client
}

// own is a second client on a stream, which is the agent.
type own[Q, P any] interface {
	requests() []Q
	response(P) (Q, bool)
	leave()
}

// run joins the client to upstreams until its stream ends, which it never does by itself.
func (s *session[Q, P]) run(ctx context.Context, c *connector[Q, P], first Q) error {
	group, ctx := errgroup.WithContext(ctx)
	requests := make(chan Q)
	group.Go(func() error {
		for {
			r, err := s.down.Recv()
			if err != nil {
				return err
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	group.Go(func() error { c.run(ctx); return nil })
	group.Go(func() error {
		s.fromClient(first)
		if s.own != nil {
			defer s.own.leave()
			for _, r := range s.own.requests() {
				s.fromClient(r)
			}
		}
		defer func() {
			s.save()
			if s.up != nil {
				s.detach()
			}
		}()
		return s.loop(ctx, requests)
	})
	return group.Wait()
}

func (s *session[Q, P]) loop(ctx context.Context, requests chan Q) error {
	s.silent = time.Now()
	w := &watcher{node: s.book.node().GetId(), statements: make(chan *statement), done: ctx.Done()}
	last, end := s.relay.watch(w)
	defer end()
	s.said = last
	tick := time.NewTicker(s.relay.o.SaveEvery)
	defer tick.Stop()
	patience := time.NewTimer(s.relay.o.Patience)
	defer patience.Stop()
	for {
		var responses chan P
		if s.up != nil {
			responses = s.up.responses
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-requests:
			s.relay.note(s.shown, r)
			s.fromClient(r)
		case said := <-w.statements:
			s.said = s.said.with(said)
			s.tell(said)
		case l := <-s.links:
			s.attach(l)
			patience.Reset(l.answerWithin)
		case r, ok := <-responses:
			if ok {
				err = s.fromServer(r)
			} else {
				s.detach()
				patience.Reset(max(0, s.relay.o.Patience-time.Since(s.silent)))
			}
		case <-patience.C:
			s.useKept()
		case <-tick.C:
			s.save()
		}
		if err != nil {
			return err
		}
	}
}

func (s *session[Q, P]) fromClient(r Q) {
	if out, ok := s.book.fromClient(r); ok {
		s.send(out)
	}
}

// send sends to the upstream. An error is that of a stream that has ended, which its responses
// tell.
func (s *session[Q, P]) send(r Q) { _ = s.up.send(r) }

func (s *session[Q, P]) fromServer(r P) error {
	s.answered()
	r = s.book.fromServer(r)
	if s.own != nil {
		if ack, ok := s.own.response(r); ok {
			s.fromClient(ack)
			return nil
		}
	}
	return s.down.Send(r)
}

// answered notes that the upstream serves the client.
func (s *session[Q, P]) answered() {
	if s.up.server != "" {
		s.silent, s.live = time.Now(), true
	}
	if !s.up.answered {
		s.up.answered = true
		s.relay.show(s.shown, s.up.server)
	}
}

// attach goes over to an upstream. One that takes a client which has something may have nothing to
// say.
func (s *session[Q, P]) attach(l *link[Q, P]) {
	if s.up != nil {
		s.detach()
	}
	s.up = l
	if s.book.settled() {
		s.answered()
	}
	for _, r := range s.book.attach() {
		s.send(r)
	}
	s.tell(s.said.health)
	s.tell(s.said.facts)
}

// tell tells the server what the machine has said of itself, if it has.
func (s *session[Q, P]) tell(said *statement) {
	if said != nil && s.up != nil && s.up.server != "" {
		s.send(s.say(said))
	}
}

func (s *session[Q, P]) detach() {
	if s.up.server != "" && s.up.answered {
		s.silent = time.Now()
	}
	s.up.cancel()
	for range s.up.responses { // until it has ended
	}
	s.up = nil
	s.book.detach()
	s.relay.show(s.shown, "")
}

// useKept answers from the last good configuration, unless a server has answered.
func (s *session[Q, P]) useKept() {
	if s.up != nil && (s.up.answered || s.up.server == "") {
		return
	}
	if l := s.kept(); l != nil {
		s.relay.o.Logger.Warn("no server answers: the proxy gets what it had last", "proxy", s.book.node().GetId())
		s.attach(l)
	}
}

// save keeps what the client has acknowledged, and that it is in touch with a server.
func (s *session[Q, P]) save() {
	node := s.book.node()
	if node == nil || s.relay.o.Store == nil {
		return
	}
	n := s.book.changes()
	switch {
	case !s.live: // all that it has is what is kept
	case s.relay.isPast(node.GetId()): // the file is for the present address
	case n != s.saved:
		s.relay.o.Store.save(keptState{Node: node.GetId(), Variant: s.variant, Types: s.book.state()})
		s.saved = n
	case s.up != nil && s.up.server != "" && s.up.answered:
		s.relay.o.Store.confirm(node.GetId(), s.variant)
	}
}

// keptState is the last good configuration of a client.
type keptState struct {
	Node, Variant string
	Types         []*discoveryv3.DeltaDiscoveryResponse
}
