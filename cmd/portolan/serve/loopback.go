package serve

import (
	"context"

	grpcpeer "google.golang.org/grpc/peer"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/xds/admission"
)

// errUsers ends the stream of a client that was believed while there were no users.
var errUsers = status.Error(codes.Unauthenticated, "the mesh has users, so this port believes nobody without proof: connect anew. For secrets, or as a gateway, "+
	"connect with a certificate of the mesh (portolan bootstrap --tls) or over the socket (serve --xds-socket)")

// errNoUsers ends the stream of a client that was doubted while there were users.
var errNoUsers = status.Error(codes.Unauthenticated, "the mesh has no users any more, so this port believes who is on this machine: connect anew")

// peerOf returns who the client of a stream has proved to be, and whether the server believes
// a client that has proved nothing: over the socket always, else until the first user.
func (s *server) peerOf(ctx context.Context) (admission.Peer, error) {
	p, err := s.security.peerOf(ctx)
	if err != nil || p.Identity != (identity.Identity{}) || s.o.AnonymousLoopback || s.o.TrustLoopbackProxies {
		return p, err
	}
	if from, ok := grpcpeer.FromContext(ctx); ok && from.Addr.Network() == "unix" {
		return p, nil
	}
	if _, err := s.mirror.Await(ctx, 0); err != nil { // until it has read the users
		return p, status.FromContextError(ctx.Err()).Err()
	}
	if p.Doubted = s.keeper.HasUsers(); p.Doubted {
		p.Still = s.someUsers
	} else {
		p.Still = s.noUsers
	}
	return p, nil
}

// someUsers ends the stream of a client that was doubted, once no user is left: it is believed when it
// connects anew.
func (s *server) someUsers(context.Context) error {
	if !s.keeper.HasUsers() {
		return errNoUsers
	}
	return nil
}

// noUsers is the proof of a client that has no other.
func (s *server) noUsers(context.Context) error {
	if s.keeper.HasUsers() {
		return errUsers
	}
	return nil
}
