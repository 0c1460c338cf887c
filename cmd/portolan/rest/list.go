package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// list answers with all selected objects, as of one revision. It ignores a limit and
// returns them all, as the protocol allows.
func (s *Server) list(c *call) error {
	selector, err := parseSelector(c)
	if err != nil {
		return err
	}
	if c.query.Get("continue") != "" {
		return refusal.BadRequest("continue: this server returns whole lists and never gave such a token")
	}
	objects, snapshot, revision, err := s.listed(c, selector)
	if err != nil {
		return err
	}
	head, err := json.Marshal(struct {
		metav1.TypeMeta
		Metadata metav1.ListMeta `json:"metadata"`
	}{c.typeMeta("List"), metav1.ListMeta{ResourceVersion: strconv.FormatInt(revision, 10)}})
	if err != nil {
		return err
	}
	out := &answer{w: c.w, until: time.Now().Add(listTimeout)}
	out.add(bytes.TrimSuffix(head, []byte("}")), []byte(`,"items":[`))
	separator := []byte("\n")
	for object := range objects {
		if !selector.matches(object) {
			continue
		}
		if err := s.addTo(out, separator, object, snapshot, c.version); err != nil {
			return out.fail(err)
		}
		separator = []byte(",\n")
	}
	out.add([]byte("]}\n"))
	out.end()
	return nil
}

// inList is the kind of a frame for an object in a list.
const inList watch.EventType = ""

// Lists of one snapshot share the text of an object; a list without a snapshot has its
// own.
func (s *Server) addTo(out *answer, separator []byte, object *config.Config, of *cache.Snapshot, version string) error {
	encode := func() ([]byte, error) { return document(s.withOrigin(object), version) }
	if of == nil {
		text, err := encode()
		if err == nil {
			out.add(separator, text)
		}
		return err
	}
	frame, err := s.frames.get(frameKey{snapshot: weak.Make(of), path: object.Key().Path(), version: version, kind: inList}, encode)
	if err != nil {
		return err
	}
	defer s.frames.put(frame)
	out.add(separator, frame.text)
	return nil
}

// listed returns the objects that a list selects from, and the revision of the list. The
// snapshot is nil if the objects come from the history.
func (s *Server) listed(c *call, selector selector) (iter.Seq[*config.Config], *cache.Snapshot, int64, error) {
	revision, err := s.parseRevision(c.query)
	if err != nil {
		return nil, nil, 0, err
	}
	stored, err := ofStoreAlone(c)
	if err != nil {
		return nil, nil, 0, err
	}
	match := c.query.Get("resourceVersionMatch")
	switch match {
	case "", "NotOlderThan", "Exact":
	default:
		return nil, nil, 0, refusal.BadRequest(fmt.Sprintf("resourceVersionMatch %q: use NotOlderThan or Exact", match))
	}
	if match == "Exact" && revision == 0 {
		return nil, nil, 0, refusal.BadRequest("resourceVersionMatch Exact needs a resourceVersion")
	}
	if match == "Exact" {
		objects, snapshot, err := s.listedAt(c, revision, selector, stored)
		return objects, snapshot, revision, err
	}
	least, err := s.minRevision(c)
	if err != nil {
		return nil, nil, 0, err
	}
	snapshot, err := s.atLeast(c.r.Context(), least)
	if err != nil {
		return nil, nil, 0, err
	}
	objects, of := inSnapshot(c, snapshot, stored)
	return objects, of, snapshot.Revision(), nil
}

// inSnapshot returns the objects for a list in a snapshot, and the snapshot with which
// lists share their text; nil if they share it with none.
func inSnapshot(c *call, snapshot *cache.Snapshot, stored bool) (iter.Seq[*config.Config], *cache.Snapshot) {
	objects, shared := snapshot.List(c.schema.GroupVersionKind, c.namespace), snapshot
	if stored {
		objects = storedAmong(snapshot, objects)
		if snapshot.Shadows().Len() > 0 {
			shared = nil
		}
	}
	return func(yield func(*config.Config) bool) {
		for object := range objects {
			if !yield(withStatus(snapshot, object)) {
				return
			}
		}
	}, shared
}

// listedAt returns the objects as they were at a revision. They come from the cache, or
// from the history if the cache does not reach so far back. For one object history often
// reaches further than for many. Objects from the history have no status.
func (s *Server) listedAt(c *call, revision int64, selector selector, stored bool) (iter.Seq[*config.Config], *cache.Snapshot, error) {
	if err := s.awaitReached(c, revision); err != nil {
		return nil, nil, err
	}
	if snapshot, ok := s.cache.At(revision); ok {
		objects, of := inSnapshot(c, snapshot, stored)
		return objects, of, nil
	}
	if s.history == nil {
		return nil, nil, expired(fmt.Sprintf("revision %d is older than the history that is kept: list without resourceVersion", revision))
	}
	of := storage.Selection{Kind: c.schema.GroupVersionKind, Namespace: c.namespace}
	if name, ok := selector.fields.RequiresExactMatch("metadata.name"); ok && (of.Namespace != "") != c.schema.ClusterScoped {
		of.Name = name
	}
	objects, err := s.history.At(c.r.Context(), strconv.FormatInt(revision, 10), of)
	if errors.Is(err, storage.ErrCompacted) {
		return nil, nil, expired(fmt.Sprintf("revision %d is not known any more: %v", revision, err))
	}
	return slices.Values(objects), nil, err
}

// awaitReached waits a while until the cache has a revision. It refuses a revision that the
// store has not reached at once: that is the client's mistake.
func (s *Server) awaitReached(c *call, revision int64) error {
	if snapshot := s.cache.Snapshot(); snapshot != nil && snapshot.Revision() < revision {
		if now, err := s.storeRevision(c.r.Context()); err == nil && now < revision {
			return refusal.BadRequest(fmt.Sprintf("revision %d is in the future: the store is at %d", revision, now))
		}
	}
	_, err := s.atLeast(c.r.Context(), revision)
	return err
}
