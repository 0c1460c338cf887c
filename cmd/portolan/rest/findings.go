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
		ops, err := s.asked(c)
		if err != nil {
			return err
		}
		if err := s.advisor.Await(c.r.Context(), s.cache.Snapshot().Changed()); err != nil {
			return err
		}
		list, known := s.advisor.Findings(ops)
		if !known {
			return refusal.Unavailable("the server has not read its configuration yet: try again in a moment")
		}
		if namespace := r.URL.Query().Get("namespace"); namespace != "" {
			list.Items = slices.DeleteFunc(list.Items, func(f finding.Finding) bool {
				return f.Object.Namespace != namespace && f.Object.Kind != finding.SourceKind
			})
		}
		list.TypeMeta = metav1.TypeMeta{Kind: finding.ListKind, APIVersion: batch.APIVersion}
		writeJSON(c.w, http.StatusOK, list)
		return nil
	})
}

// Ask serves a path that answers a question about the configuration: as it is (GET), or as it would
// be after the operations of a batch (POST). Both need the right to get the path. The answer is a
// value of a type that always encodes, as JSON.
func (s *Server) Ask(path string, answer func(r *http.Request, ops []storage.Op) (any, error)) {
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, func(c *call) error {
			ops, err := s.asked(c)
			if err != nil {
				return err
			}
			value, err := answer(c.r, ops)
			if err == nil {
				WriteJSON(c.w, http.StatusOK, value)
			}
			return c.recordRefusal(err)
		})
	})
}

// asked admits the caller of a question, and returns the operations that it is about; none of GET.
func (s *Server) asked(c *call) ([]storage.Op, error) {
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		return nil, s.admit(c)
	case http.MethodPost:
		c.verb = "create"
		if err := s.authenticate(c); err != nil {
			return nil, err
		}
		if err := s.authorize(c, access.Request{Verb: "get", Path: c.r.URL.Path, Query: c.query}); err != nil {
			return nil, err
		}
		ops, err := s.operationsOf(c)
		return s.foreseen(c.r.Context(), ops), err
	}
	c.w.Header().Set("Allow", "GET, POST")
	return nil, methodNotAllowed(c)
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
