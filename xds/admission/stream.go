package admission

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/identity"
)

// Peer is who the client of a stream has proved to be. The zero Peer has proved nothing.
type Peer struct {
	Identity identity.Identity
	// Until is when the proof ends; the zero time is never. The server then ends the stream
	// and the connection under it: a client that has renewed its certificate connects with
	// the new one.
	Until time.Time
	// Still returns nil while the proof holds, else a gRPC status that says why it does
	// not. The status is Unavailable if that is not known. Without Still the proof holds
	// until Until.
	Still func(context.Context) error
	// Doubted means that nothing which the client says of itself without proof is believed: it
	// gets no secrets, and no labels select a Gateway for it.
	Doubted bool
}

func (p Peer) proved() bool { return p.Identity != identity.Identity{} }

// errExpired ends a stream whose proof has ended.
var errExpired = status.Error(codes.Unauthenticated, "the certificate or token of this connection has expired: connect anew with a renewed one")

// Stream is one stream and its client, as the gate knows them. It is safe for concurrent use.
type Stream struct {
	gate    *Gate
	remote  net.Addr // nil if unknown
	cancel  func(error)
	peer    Peer
	account *account    // nil if the client has proved nothing
	expiry  *time.Timer // nil if the proof does not end by time

	kept map[any]struct{} // what Keep was called for; nil after Release; the budget's lock guards it

	mu       sync.Mutex // guards the fields below
	node     string     // what the client says that it is; empty before Admit
	sync     *firstSync // nil before and after the first sync
	released bool
}

// Open lets the stream of a call in, or returns why not. The gate calls cancel to end the
// stream. The caller must Release the stream.
func (g *Gate) Open(ctx context.Context, cancel func(error)) (*Stream, error) {
	s := &Stream{gate: g, cancel: cancel, kept: map[any]struct{}{}}
	if p, ok := peer.FromContext(ctx); ok {
		s.remote = p.Addr
	}
	g.mu.Lock()
	checks := g.checks
	g.mu.Unlock()
	if err := s.meet(ctx); err != nil {
		s.refuse("", err)
		return nil, err
	}
	if !s.peer.Until.IsZero() {
		s.expiry = time.AfterFunc(time.Until(s.peer.Until), s.expire)
	}
	if s.peer.Still == nil {
		return s, nil
	}
	g.mu.Lock()
	g.proved[s] = struct{}{}
	missed := g.checks != checks
	g.mu.Unlock()
	if missed {
		s.check(ctx)
	}
	return s, nil
}

// meet learns who the client is, checks its trust domain, and counts its stream.
func (s *Stream) meet(ctx context.Context) (err error) {
	g := s.gate
	if g.options.Peer == nil {
		return nil
	}
	if s.peer, err = g.options.Peer(ctx); err != nil || !s.peer.proved() {
		return err
	}
	if err := s.ofMesh(); err != nil {
		return err
	}
	s.account, err = g.budget.enter(s.peer.Identity)
	return err
}

// ofMesh returns why a client that has proved its identity is not of this mesh, nil if it is.
func (s *Stream) ofMesh() error {
	who, mesh := s.peer.Identity, s.gate.mesh()
	if domain := mesh.GetTrustDomain(); who.TrustDomain != domain && !slices.Contains(mesh.GetTrustDomainAliases(), who.TrustDomain) {
		return status.Errorf(codes.PermissionDenied, "%s is of the trust domain %q, and this mesh is %q: get a certificate of this mesh, or name the other in trustDomainAliases of its MeshConfig",
			who, who.TrustDomain, domain)
	}
	return nil
}

// Release takes the stream out of the counts. It gives up the slot, also one that the
// stream still waits for, and all memory that is kept for the client.
func (s *Stream) Release() {
	if s.expiry != nil {
		s.expiry.Stop()
	}
	g := s.gate
	g.mu.Lock()
	delete(g.proved, s)
	g.mu.Unlock()
	g.budget.leave(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	if s.sync != nil {
		s.endSync()
	}
}

// ProofEnds is when the client's proof ends; zero if it has none, or one that does not end.
func (s *Stream) ProofEnds() time.Time { return s.peer.Until }

// Remote is the address of the client, nil if unknown.
func (s *Stream) Remote() net.Addr { return s.remote }

// Admit sets the identity and the service account of a proxy to those that its client has
// proved. It returns why the proxy is refused: its node contradicts that identity, or it is
// a control plane that may not take objects.
func (s *Stream) Admit(ctx context.Context, proxy *discovery.Proxy) error {
	if err := s.takeIdentity(ctx, proxy); err != nil {
		s.refuse(proxy.ID, err)
		return err
	}
	s.gate.refusals.served(proxy.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = proxy.ID
	return nil
}

func (s *Stream) takeIdentity(ctx context.Context, proxy *discovery.Proxy) error {
	who := s.peer.Identity
	if !s.peer.proved() {
		if s.peer.Doubted {
			s.gate.doubt(proxy)
		}
		return nil
	}
	if proxy.Type == discovery.ConfigClient {
		if err := s.MayExport(ctx); err != nil {
			return err
		}
	} else if proxy.Namespace != who.Namespace {
		return status.Errorf(codes.PermissionDenied, "node %q says that it is of the namespace %q, and its identity is %s: have it start with the namespace %q, or get a certificate for %[2]q",
			proxy.ID, proxy.Namespace, who, who.Namespace)
	}
	if proxy.ServiceAccount != "" && proxy.ServiceAccount != who.ServiceAccount {
		return status.Errorf(codes.PermissionDenied, "node %q says that its service account is %q, and its identity is %s: have it start with the account %q, or get a certificate for %[2]q",
			proxy.ID, proxy.ServiceAccount, who, who.ServiceAccount)
	}
	proxy.Identity, proxy.ServiceAccount = who.String(), who.ServiceAccount
	return nil
}

// doubt has the server believe nothing that a proxy says without proof.
func (g *Gate) doubt(proxy *discovery.Proxy) {
	if proxy.Type == discovery.Router {
		g.logger.Warn("believing no labels of a gateway that has proved nothing, as there are users: no Gateway with a selector is for it; have it connect with a certificate of the mesh, or over --xds-socket", "proxy", proxy.ID)
	}
	proxy.Doubt()
}

// MayExport returns why the client may not take the objects of the mesh, nil if it may. A
// client that has proved nothing may.
func (s *Stream) MayExport(ctx context.Context) error {
	who, may := s.peer.Identity, s.gate.options.MayExport
	if !s.peer.proved() {
		return nil
	}
	if may == nil {
		return status.Errorf(codes.PermissionDenied, "%s may not read the objects of the mesh (GENERATOR: api): this server gives that right to nobody over this port", who)
	}
	if err := may(ctx, who); err != nil {
		return status.Errorf(codes.PermissionDenied, "%s may not read the objects of the mesh (GENERATOR: api): %v", who, err)
	}
	return nil
}

// says returns the node id that the client sent; empty before Admit.
func (s *Stream) says() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}

// check ends the stream if the proof of its client no longer holds.
func (s *Stream) check(ctx context.Context) {
	err := s.peer.Still(ctx)
	if err == nil {
		err = s.ofMesh()
	}
	if err == nil || status.Code(err) == codes.Unavailable || ctx.Err() != nil {
		return
	}
	s.refuse(s.says(), err)
	s.cancel(err)
	time.AfterFunc(farewell, func() { s.HangUp(err) })
}

// farewell is how long a connection stays open after the client was told why its stream
// ends. Then it is closed: a client that has got another certificate shows it with the next
// connection.
const farewell = time.Second

// expire ends the stream: the proof of its client has ended.
func (s *Stream) expire() {
	s.gate.logger.Info("closing a connection whose certificate or token has expired", "proxy", s.says(), "identity", s.peer.Identity.String())
	s.HangUp(errExpired)
}

// HangUp ends the stream and the connection under it. A client that only loses its stream
// would open the next one on the same connection.
func (s *Stream) HangUp(why error) {
	s.cancel(why)
	if hangUp := s.gate.options.HangUp; hangUp != nil && s.remote != nil {
		hangUp(s.remote)
	}
}
