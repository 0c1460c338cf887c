package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
)

// get answers with one object of the newest snapshot.
func (s *Server) get(c *call) error {
	if truthy(c.query, "watch") {
		return badRequest("watch a list with fieldSelector=metadata.name=" + c.name + " instead of an object")
	}
	revision, err := parseRevision(c.query)
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
	return s.writeObject(c, http.StatusOK, object)
}

// parseRevision reads resourceVersion; absent and 0 are any.
func parseRevision(query url.Values) (int64, error) {
	text := query.Get("resourceVersion")
	if text == "" {
		return 0, nil
	}
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil || revision < 0 {
		return 0, badRequest(fmt.Sprintf("resourceVersion %q is none of this server: use one that it returned", text))
	}
	return revision, nil
}

// atLeast returns the newest snapshot, which it waits for a while to be at a
// revision that a client has seen elsewhere.
func (s *Server) atLeast(ctx context.Context, revision int64) (*cache.Snapshot, error) {
	snapshot := s.cache.Snapshot()
	if snapshot == nil {
		return nil, unavailable("the cache has not read the store yet: try again in a moment")
	}
	if snapshot.Revision() >= revision {
		return snapshot, nil
	}
	wait, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	snapshot, err := s.cache.Await(wait, revision)
	if err != nil {
		return nil, tooFarAhead(err)
	}
	return snapshot, nil
}
