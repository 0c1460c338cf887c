package rest

import (
	"fmt"
	"net/http"

	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/storage"
)

// unreserved returns why a request may not do an operation that is for servers only; nil
// if it may. The server's user may delete such objects.
func (s *Server) unreserved(r *http.Request, op storage.Op) error {
	if s.reserved == nil {
		return nil
	}
	err := s.reserved(op, s.cache.Snapshot().Stored(op.Target()))
	switch {
	case err == nil, op.Verb == storage.Delete && socket.OverSocket(r):
		return nil
	case op.Verb == storage.Delete && s.socket != "":
		return fmt.Errorf("%w: delete it on the unix socket %s alone, which the user who runs the server can open", err, s.socket)
	}
	return err
}
