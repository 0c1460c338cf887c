package rest

import (
	"net/http"

	"github.com/portolan-mesh/portolan/storage"
)

// get answers with one object of the newest snapshot.
func (s *Server) get(c *call) error {
	if truthy(c.query, "watch") {
		return badRequest("watch a list with fieldSelector=metadata.name=" + c.name + " instead of an object")
	}
	revision, err := s.minRevision(c)
	if err != nil {
		return err
	}
	snapshot, err := s.atLeast(c.r.Context(), revision)
	if err != nil {
		return err
	}
	object := withStatus(snapshot, snapshot.Get(c.key()))
	if object == nil {
		return storage.ErrNotFound
	}
	return s.writeObject(c, http.StatusOK, object)
}
