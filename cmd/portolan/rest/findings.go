package rest

import (
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// findings serves the findings about the stored objects, or about the objects after a
// batch.
func (s *Server) findings(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, func(c *call) error {
		c.kind = "findings"
		var ops []storage.Op
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			if err := s.admit(c); err != nil {
				return err
			}
		case http.MethodPost:
			c.verb = "create"
			if err := s.authenticate(c); err != nil {
				return err
			}
			err := s.authorize(c, access.Request{Verb: "get", Path: r.URL.Path, Query: c.query})
			if err != nil {
				return err
			}
			if ops, err = s.operationsOf(c); err != nil {
				return err
			}
		default:
			c.w.Header().Set("Allow", "GET, POST")
			return methodNotAllowed(c)
		}
		if err := s.advisor.Await(c.r.Context(), s.cache.Snapshot().Changed()); err != nil {
			return err
		}
		list, known := s.advisor.Findings(s.foreseen(c.r.Context(), ops))
		if !known {
			return refusal.Unavailable("the server has not read its configuration yet: try again in a moment")
		}
		if namespace := r.URL.Query().Get("namespace"); namespace != "" {
			list.Items = slices.DeleteFunc(list.Items, func(f finding.Finding) bool { return f.Object.Namespace != namespace })
		}
		list.TypeMeta = metav1.TypeMeta{Kind: finding.ListKind, APIVersion: batch.APIVersion}
		writeJSON(c.w, http.StatusOK, list)
		return nil
	})
}

// operationsOf reads a batch that only serves a question.
func (s *Server) operationsOf(c *call) ([]storage.Op, error) {
	request, err := s.readBatch(c)
	if err != nil {
		return nil, err
	}
	b := &batchCall{server: s, call: c, places: map[config.Key]int{}}
	if err := b.readOperations(request.Operations); err != nil {
		return nil, err
	}
	return b.ops, nil
}
