package rest

import (
	"net/http"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
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
	warn(c.w, s.behind(c.key()))
	if object == nil {
		return storage.ErrNotFound
	}
	return s.writeObject(c, http.StatusOK, s.alone(snapshot, object))
}

// alone returns an object as it is served by itself: with what this server knows of its last
// write, where the store has no report of that yet.
func (s *Server) alone(snapshot *cache.Snapshot, object *config.Config) *config.Config {
	if stored := snapshot.Statuses().Value(object.Key().Path()); s.report != nil && !stored.About(object) {
		report := s.report(object, stored).WithClients(stored.ClientsOf(object.UID))
		return withReport(withComparedStatus(snapshot, object), report)
	}
	return withStatus(snapshot, object)
}
