package rest

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/refusal"
)

// Get serves a further path as Endpoint does, and refuses any other method than GET and HEAD.
func (s *Server) Get(path string, answer EndpointFunc) {
	s.Endpoint(path, func(w http.ResponseWriter, r *http.Request) error {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET")
			return refusal.New(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "use GET")
		}
		return answer(w, r)
	})
}

// View is Get for a path that answers with a value of a type that always encodes, as JSON.
func (s *Server) View(path string, view func(*http.Request) (any, error)) {
	s.Get(path, func(w http.ResponseWriter, r *http.Request) error {
		value, err := view(r)
		if err == nil {
			WriteJSON(w, http.StatusOK, value)
		}
		return err
	})
}
