package rest

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/refusal"
)

// Only answers requests of one method, and refuses all others.
func Only(method string, answer EndpointFunc) EndpointFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if r.Method != method {
			return NotAllowed(w, r, method)
		}
		return answer(w, r)
	}
}

// NotAllowed refuses the method of a request. allow lists those that the path takes.
func NotAllowed(w http.ResponseWriter, r *http.Request, allow string) error {
	w.Header().Set("Allow", allow)
	return refusal.New(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		fmt.Sprintf("method %s is not allowed on %s: it takes %s", r.Method, r.URL.Path, allow))
}

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
