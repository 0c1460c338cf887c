package rest

import (
	"fmt"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// Private restricts an endpoint to the user of the server. It answers over
// Options.Socket or, with an Authenticator, to users who have proved their identity. In
// both cases the Authorizer must permit them to Administer.
func (s *Server) Private(answer EndpointFunc) EndpointFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if want := r.Header.Get(socket.ServerHeader); want != "" && want != s.id {
			return refusal.New(http.StatusMisdirectedRequest, metav1.StatusReasonBadRequest, "another server listens on this socket than the one that was asked")
		}
		if s.authenticator != nil && !IdentityOf(r.Context()).Unproved || socket.OverSocket(r) {
			if c, ok := r.Context().Value(callKey{}).(*call); ok {
				if err := s.authorize(c, access.Request{Verb: access.Administer, Path: r.URL.Path}); err != nil {
					return err
				}
			}
			return answer(w, r)
		}
		if s.socket == "" {
			return refusal.Forbidden(fmt.Sprintf("%s %s is answered on a unix socket alone, and this server has none: start it with --api-socket FILE", r.Method, r.URL.Path))
		}
		w.Header().Set(socket.SocketHeader, url.PathEscape(s.socket))
		w.Header().Set(socket.ServerHeader, s.id)
		return refusal.Forbidden(fmt.Sprintf("%s %s is answered on the unix socket %s alone, which the user who runs the server can open: "+
			"run portolan as that user on the machine of the server, or curl --unix-socket %[3]s http://localhost%[2]s", r.Method, r.URL.Path, s.socket))
	}
}
