package rest

import (
	"net/http"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// get answers with one object of the newest snapshot.
func (s *Server) get(c *call) error {
	if truthy(c.query, "watch") {
		return refusal.BadRequest("watch a list with fieldSelector=metadata.name=" + c.name + " instead of an object")
	}
	revision, err := s.minRevision(c)
	if err != nil {
		return err
	}
	snapshot, err := s.atLeast(c.r.Context(), revision)
	if err != nil {
		return err
	}
	object := snapshot.Get(c.key())
	if object == nil {
		return storage.ErrNotFound
	}
	if stored := snapshot.Statuses().Value(object.Key().Path()); s.report != nil && !stored.About(object) {
		return s.writeObject(c, http.StatusOK, withReport(withComparedStatus(snapshot, object), s.report(object, stored)))
	}
	return s.writeObject(c, http.StatusOK, withStatus(snapshot, object))
}
