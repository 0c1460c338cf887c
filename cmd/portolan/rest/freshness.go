package rest

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"sync"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// minRevision returns the oldest revision that may answer the request. A resourceVersion
// names it: with the one that a write returned, a client reads its own write through
// any replica. With consistent=true the answer shows every write acknowledged before
// the request, so minRevision asks the store for its revision.
func (s *Server) minRevision(c *call) (int64, error) {
	revision, err := s.parseRevision(c.query)
	if err != nil || !truthy(c.query, "consistent") {
		return revision, err
	}
	now, err := s.storeRevision(c.r.Context())
	if err != nil {
		return 0, refusal.Unavailable("the store cannot be asked for its revision, which consistent=true needs: " + err.Error())
	}
	return max(revision, now), nil
}

// storeRevision returns the present revision of the store. For a store without a network
// that is its version.
func (s *Server) storeRevision(ctx context.Context) (int64, error) {
	quorum, ok := s.cache.(Quorum)
	if !ok {
		return strconv.ParseInt(s.store.Version(), 10, 64)
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	return quorum.StoreRevision(ctx)
}

// parseRevision reads resourceVersion; absent and 0 accept any. Objects of other sources
// have versions that are not revisions: a client that resumes from one must list again.
func (s *Server) parseRevision(query url.Values) (int64, error) {
	text := query.Get("resourceVersion")
	if text == "" {
		return 0, nil
	}
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil && s.several {
		return 0, expired(fmt.Sprintf("too old resource version: %q is the version of an object of another source than the store: list again and watch from there", text))
	}
	if err != nil || revision < 0 {
		return 0, refusal.BadRequest(fmt.Sprintf("resourceVersion %q is none of this server: use one that it returned", text))
	}
	return revision, nil
}

// atLeast returns the newest snapshot. If a client has seen a later revision elsewhere,
// it waits a while for that one.
func (s *Server) atLeast(ctx context.Context, revision int64) (*cache.Snapshot, error) {
	snapshot := s.cache.Snapshot()
	if snapshot == nil {
		return nil, refusal.Starting("the cache has not read the store yet: try again in a moment")
	}
	if snapshot.Revision() >= revision {
		return snapshot, nil
	}
	wait, cancel := context.WithTimeout(ctx, catchUpWait)
	now := make(chan int64, 1)
	var asking sync.WaitGroup
	asking.Go(func() {
		if revision, err := s.storeRevision(wait); err == nil {
			now <- revision
		}
	})
	defer asking.Wait()
	defer cancel()
	snapshot, err := s.cache.Await(wait, revision)
	if err == nil {
		return snapshot, nil
	}
	select {
	case now := <-now:
		if now < revision {
			return nil, unknownRevision(revision, now)
		}
	default:
	}
	return nil, tooFarAhead(err)
}
