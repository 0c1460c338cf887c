package xds

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
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
	// Still returns why the proof is none any more, as a status of gRPC, nil while it is one;
	// Unavailable where that is not known. Without it the proof holds until Until.
	Still func(context.Context) error
}

// errExpired ends a stream whose proof has ended.
var errExpired = status.Error(codes.Unauthenticated, "the certificate or token of this connection has expired: connect anew with a renewed one")

// meet returns who the client of a new stream is, and counts its stream. The stream must be
// given back with leave.
func (s *DiscoveryServer) meet(ctx context.Context) (peer Peer, leave func(), err error) {
	if s.options.Peer == nil {
		return Peer{}, func() {}, nil
	}
	if peer, err = s.options.Peer(ctx); err != nil {
		return peer, nil, err
	}
	who := peer.Identity
	if who == (identity.Identity{}) {
		return peer, func() {}, nil
	}
	if domain := s.options.Mesh.GetTrustDomain(); who.TrustDomain != domain && !slices.Contains(s.options.Mesh.GetTrustDomainAliases(), who.TrustDomain) {
		return peer, nil, status.Errorf(codes.PermissionDenied, "%s is of the trust domain %q, and this mesh is %q: get a certificate of this mesh, or name the other in trustDomainAliases of its MeshConfig",
			who, who.TrustDomain, domain)
	}
	if err := s.identities.enter(who); err != nil {
		return peer, nil, err
	}
	return peer, func() { s.identities.leave(who) }, nil
}

// outrank has the identity of the client decide who its proxy is. It returns why the proxy is
// refused: it says that it is another.
func (c *Connection) outrank(ctx context.Context, proxy *discovery.Proxy) error {
	who := c.peer.Identity
	if who == (identity.Identity{}) {
		return nil
	}
	if proxy.Type == discovery.ConfigClient {
		if err := c.server.mayExport(ctx, who); err != nil {
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

// stillMay returns why a control plane is given nothing more: its right to the objects of the
// mesh has ended.
func (c *Connection) stillMay(ctx context.Context) error {
	if c.proxy.Type != discovery.ConfigClient || c.peer.Identity == (identity.Identity{}) {
		return nil
	}
	err := c.server.mayExport(ctx, c.peer.Identity)
	if err != nil {
		c.logger.Info("closing the stream of a control plane that may not read the objects of the mesh any more", "proxy", c.note.Node(), "identity", c.peer.Identity.String(), "reason", err)
	}
	return err
}

// mayExport returns why an identity may not take the objects of the mesh.
func (s *DiscoveryServer) mayExport(ctx context.Context, who identity.Identity) error {
	if s.options.MayExport == nil {
		return status.Errorf(codes.PermissionDenied, "%s may not read the objects of the mesh (GENERATOR: api): this server gives that right to nobody over this port", who)
	}
	if err := s.options.MayExport(ctx, who); err != nil {
		return status.Errorf(codes.PermissionDenied, "%s may not read the objects of the mesh (GENERATOR: api): %v", who, err)
	}
	return nil
}

// CheckPeers ends the streams whose clients have lost what they came in by, such as an identity
// that was revoked. Call it when such a thing has changed; streams that begin meanwhile are
// looked at, too.
func (s *DiscoveryServer) CheckPeers(ctx context.Context) {
	s.checks.Add(1) // before the streams are listed: see serve
	for _, c := range s.all() {
		c.checkPeer(ctx)
	}
}

// checkPeer ends the stream if its client has lost what it came in by.
func (c *Connection) checkPeer(ctx context.Context) {
	if c.peer.Still == nil {
		return
	}
	err := c.peer.Still(ctx)
	if err == nil || status.Code(err) == codes.Unavailable || ctx.Err() != nil {
		return
	}
	c.server.refuse(c.remote, c.peer, c.note.Node(), err)
	c.cancel(err)
	time.AfterFunc(farewell, func() { c.server.hangUp(c, err) })
}

// farewell is how long a connection stays open whose client is told why its stream ends. It is
// closed then: a client that has got another certificate shows it with the next connection.
const farewell = time.Second

// expire ends the stream when the proof of its client ends. The returned function stops that.
func (c *Connection) expire() (stop func()) {
	if c.peer.Until.IsZero() {
		return func() {}
	}
	timer := time.AfterFunc(time.Until(c.peer.Until), func() {
		c.logger.Info("closing a connection whose certificate or token has expired", "proxy", c.note.Node(), "identity", c.peer.Identity.String())
		c.server.hangUp(c, errExpired)
	})
	return func() { timer.Stop() }
}
