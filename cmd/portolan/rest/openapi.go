package rest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/openapi"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// openAPI serves the description of the API in OpenAPI, to all who may read its discovery.
func (s *Server) openAPI() {
	for _, route := range openapi.Routes(schema.NewSet(s.kinds()...), openapi.Options{Version: s.version, HasStatus: s.hasStatus}) {
		s.mux.Handle("GET "+route.Path, s.guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			_ = bounded(w, func() error { // an error means that the client is gone
				route.Handler.ServeHTTP(w, r)
				return nil
			})
		})))
	}
}

// checkFieldValidation reports values of fieldValidation other than those of Kubernetes. All
// of them mean the same: an unknown field is refused. With Ignore and Warn Kubernetes would
// drop it, and the author would have a policy or a route without a part of what was written.
// A read ignores the parameter.
func (c *call) checkFieldValidation(found *faults) {
	if c.r.Method == http.MethodGet || c.r.Method == http.MethodHead {
		return
	}
	known := []string{metav1.FieldValidationIgnore, metav1.FieldValidationWarn, metav1.FieldValidationStrict}
	for _, value := range c.query["fieldValidation"] {
		if value != "" && !slices.Contains(known, value) {
			found.cannotRead("fieldValidation", fmt.Sprintf("%q is not known: use one of %s, or leave it out. Unknown fields are refused with each", value, strings.Join(known, ", ")))
		}
	}
}
