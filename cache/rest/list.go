package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// list answers with all objects that are selected, as of one revision. It
// returns them all whatever the limit asked for, as the protocol allows.
func (s *Server) list(c *call) error {
	selector, err := parseSelector(c.query)
	if err != nil {
		return err
	}
	if c.query.Get("continue") != "" {
		return badRequest("continue: this server returns whole lists and never gave such a token")
	}
	objects, revision, err := s.listed(c, selector)
	if err != nil {
		return err
	}
	var body bytes.Buffer
	head, err := json.Marshal(struct {
		metav1.TypeMeta
		Metadata metav1.ListMeta `json:"metadata"`
	}{c.typeMeta("List"), metav1.ListMeta{ResourceVersion: strconv.FormatInt(revision, 10)}})
	if err != nil {
		return err
	}
	body.Write(bytes.TrimSuffix(head, []byte("}")))
	body.WriteString(`,"items":[`)
	separator := "\n"
	for object := range objects {
		if !selector.matches(object) {
			continue
		}
		text, err := config.ToJSON(object, c.version)
		if err != nil {
			return err
		}
		body.WriteString(separator)
		body.Write(text)
		separator = ",\n"
	}
	body.WriteString("]}\n")
	writeBody(c.w, http.StatusOK, body.Bytes())
	return nil
}

// listed are the objects that a list selects from, and the revision at which
// they stood.
func (s *Server) listed(c *call, selector selector) (iter.Seq[*config.Config], int64, error) {
	revision, err := parseRevision(c.query)
	if err != nil {
		return nil, 0, err
	}
	match := c.query.Get("resourceVersionMatch")
	switch match {
	case "", "NotOlderThan", "Exact":
	default:
		return nil, 0, badRequest(fmt.Sprintf("resourceVersionMatch %q: use NotOlderThan or Exact", match))
	}
	if match == "Exact" && revision == 0 {
		return nil, 0, badRequest("resourceVersionMatch Exact needs a resourceVersion")
	}
	if match == "Exact" {
		objects, err := s.listedAt(c, revision, selector)
		return objects, revision, err
	}
	least, err := s.least(c)
	if err != nil {
		return nil, 0, err
	}
	snapshot, err := s.atLeast(c.r.Context(), least)
	if err != nil {
		return nil, 0, err
	}
	return inSnapshot(c, snapshot), snapshot.Revision(), nil
}

// inSnapshot are the objects of a list as a snapshot has them.
func inSnapshot(c *call, snapshot *cache.Snapshot) iter.Seq[*config.Config] {
	return func(yield func(*config.Config) bool) {
		for object := range snapshot.List(c.schema.GroupVersionKind, c.namespace) {
			if !yield(served(snapshot, object)) {
				return
			}
		}
	}
}

// listedAt are the objects as they were at a revision: from the cache, or from
// the history where that does not reach so far back. Of one object alone history
// often reaches further than of many. What history tells has no status.
func (s *Server) listedAt(c *call, revision int64, selector selector) (iter.Seq[*config.Config], error) {
	if err := s.reach(c, revision); err != nil {
		return nil, err
	}
	if snapshot, ok := s.cache.At(revision); ok {
		return inSnapshot(c, snapshot), nil
	}
	if s.history == nil {
		return nil, expired(fmt.Sprintf("revision %d is older than the history that is kept: list without resourceVersion", revision))
	}
	of := storage.Selection{Kind: c.schema.GroupVersionKind, Namespace: c.namespace}
	if name, ok := selector.fields.RequiresExactMatch("metadata.name"); ok && (of.Namespace != "") != c.schema.ClusterScoped {
		of.Name = name
	}
	objects, err := s.history.At(c.r.Context(), strconv.FormatInt(revision, 10), of)
	if errors.Is(err, storage.ErrCompacted) {
		return nil, expired(fmt.Sprintf("revision %d is not known any more: %v", revision, err))
	}
	return slices.Values(objects), err
}

// reach waits for a while until the cache is at a revision. One that the store
// has not reached is refused at once: it is a mistake of the client's.
func (s *Server) reach(c *call, revision int64) error {
	if snapshot := s.cache.Snapshot(); snapshot != nil && snapshot.Revision() < revision {
		if now, err := s.storeRevision(c.r.Context()); err == nil && now < revision {
			return badRequest(fmt.Sprintf("revision %d is in the future: the store is at %d", revision, now))
		}
	}
	_, err := s.atLeast(c.r.Context(), revision)
	return err
}
