package rest

import (
	"fmt"
	"net/http"

	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// Open serves a further path as Endpoint does, for callers who prove their identity to
// the endpoint itself: it uses neither Options.Authenticator nor Options.Authorizer. It
// answers only over TLS and to this machine.
func (s *Server) Open(pattern string, answer EndpointFunc) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, func(c *call) error {
			c.setIdentity(access.Identity{})
			if r.TLS == nil && !socket.FromThisMachine(r) {
				return refusal.Forbidden(fmt.Sprintf("%s is answered over TLS alone", r.URL.Path))
			}
			return answer(c.w, c.r)
		})
	})
}
