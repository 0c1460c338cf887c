package rest

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strconv"
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// list answers with the selected objects, all or one page, as of one revision.
func (s *Server) list(c *call) error {
	selector, err := c.selector()
	if err != nil {
		return err
	}
	page, err := parsePage(c)
	if err != nil {
		return err
	}
	from, err := s.listed(c, selector, page)
	if err != nil {
		return err
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatInt(from.revision, 10)}
	objects := from.selected(selector, page.after)
	if page.limit > 0 {
		var rest bool
		if objects, rest = first(objects, page.limit); rest {
			from.continueAt(&meta, objects, selector)
		}
	}
	return s.answerList(c, meta, from.served(objects), from.shared)
}

// answerList answers with objects as they are served, in the form that the client takes. shared is
// the snapshot with which lists share their text, nil for none.
func (s *Server) answerList(c *call, meta metav1.ListMeta, objects iter.Seq[*config.Config], shared *cache.Snapshot) error {
	head, elements, err := c.listHead(meta)
	if err != nil {
		return err
	}
	out := &layout{form: c.form, out: newAnswer(c)}
	if err := out.begin(head, elements); err != nil {
		return err
	}
	for object := range objects {
		if err := s.addTo(out, object, shared, c.version); err != nil {
			return out.out.fail(err)
		}
	}
	return out.end()
}

// first returns the first objects, at most limit, and whether there are more.
func first(objects iter.Seq[*config.Config], limit int) (iter.Seq[*config.Config], bool) {
	var out []*config.Config
	for object := range objects {
		if len(out) == limit {
			return slices.Values(out), true
		}
		out = append(out, object)
	}
	return slices.Values(out), false
}

// inList is the kind of a frame for an object in a list.
const inList watch.EventType = ""

// Lists of one snapshot share the text of an object; a list without a snapshot has its
// own.
func (s *Server) addTo(out *layout, object *config.Config, of *cache.Snapshot, version string) error {
	encode := func() ([]byte, error) { return out.item(s.withOrigin(object), version) }
	if of == nil {
		text, err := encode()
		if err == nil {
			out.add(text)
		}
		return err
	}
	frame, err := s.frames.get(frameKey{snapshot: weak.Make(of), path: object.Key().Path(), version: version, kind: inList, shape: out.shape}, encode)
	if err != nil {
		return err
	}
	defer s.frames.put(frame)
	out.add(frame.text)
	return nil
}

// listing is what a list selects from.
type listing struct {
	// after iterates over the objects after a Path, without their status.
	after    func(path string) iter.Seq[*config.Config]
	snapshot *cache.Snapshot // nil if the objects come from the history
	shared   *cache.Snapshot // with which lists share their text; nil if they share it with none
	revision int64
}

func (l listing) selected(selector selector, after string) iter.Seq[*config.Config] {
	return func(yield func(*config.Config) bool) {
		for object := range l.after(after) {
			if selector.matches(object) && !yield(object) {
				return
			}
		}
	}
}

// served returns objects with their status, as far as that is known.
func (l listing) served(objects iter.Seq[*config.Config]) iter.Seq[*config.Config] {
	if l.snapshot == nil {
		return objects
	}
	return func(yield func(*config.Config) bool) {
		for object := range objects {
			if !yield(withStatus(l.snapshot, object)) {
				return
			}
		}
	}
}

// continueAt says in the metadata of a page where the next one begins, and how many objects
// remain, which is not counted for a selection.
func (l listing) continueAt(meta *metav1.ListMeta, objects iter.Seq[*config.Config], selector selector) {
	var last string
	for object := range objects {
		last = object.Key().Path()
	}
	meta.Continue = token{Revision: l.revision, After: last}.String()
	if selector.empty() {
		var n int64
		for range l.after(last) {
			n++
		}
		meta.RemainingItemCount = &n
	}
}

// listed returns what a list selects from.
func (s *Server) listed(c *call, selector selector, page page) (listing, error) {
	revision, err := s.parseRevision(c.query)
	if err != nil {
		return listing{}, err
	}
	stored, err := ofStoreAlone(c)
	if err != nil {
		return listing{}, err
	}
	match := c.query.Get("resourceVersionMatch")
	switch match {
	case "", "NotOlderThan", "Exact":
	default:
		return listing{}, refusal.Invalid(fmt.Sprintf("resourceVersionMatch %q: use NotOlderThan or Exact", match))
	}
	switch {
	case match == "Exact" && revision == 0:
		return listing{}, refusal.Invalid("resourceVersionMatch Exact needs a resourceVersion")
	case match == "Exact":
		return s.listedAt(c, revision, selector, stored)
	case page.revision > 0:
		return s.continued(c, selector, stored, page)
	}
	if !stored {
		warn(c.w, s.behind(oneOrAll(c, selector)))
	}
	least, err := s.minRevision(c)
	if err != nil {
		return listing{}, err
	}
	snapshot, err := s.atLeast(c.r.Context(), least)
	if err != nil {
		return listing{}, err
	}
	return inSnapshot(c, snapshot, snapshot.Revision(), stored), nil
}

// continued returns what the next page of a list selects from: what the first one did. The
// history has the objects of the store alone, so it does not answer for those of others.
func (s *Server) continued(c *call, selector selector, stored bool, page page) (listing, error) {
	if s.several && !stored {
		if err := s.awaitReached(c, page.revision); err != nil {
			return listing{}, err
		}
		snapshot, ok := s.cache.At(page.revision)
		if !ok {
			return listing{}, page.tooOld()
		}
		return inSnapshot(c, snapshot, page.revision, stored), nil
	}
	from, err := s.listedAt(c, page.revision, selector, stored)
	if apierrors.IsResourceExpired(err) {
		return listing{}, page.tooOld()
	}
	return from, err
}

// inSnapshot returns the objects for a list in a snapshot, as of a revision.
func inSnapshot(c *call, snapshot *cache.Snapshot, revision int64, stored bool) listing {
	out := listing{snapshot: snapshot, shared: snapshot, revision: revision}
	out.after = func(path string) iter.Seq[*config.Config] {
		return snapshot.ListAfter(c.schema.GroupVersionKind, c.namespace, path)
	}
	if !stored {
		return out
	}
	if snapshot.Shadows().Len() > 0 {
		out.shared = nil
	}
	all := out.after
	out.after = func(path string) iter.Seq[*config.Config] { return storedAmong(snapshot, all(path)) }
	return out
}

// listedAt returns the objects as they were at a revision. They come from the cache, or
// from the history if the cache does not reach so far back. For one object history often
// reaches further than for many. Objects from the history have no status.
func (s *Server) listedAt(c *call, revision int64, selector selector, stored bool) (listing, error) {
	if err := s.awaitReached(c, revision); err != nil {
		return listing{}, err
	}
	if snapshot, ok := s.cache.At(revision); ok {
		return inSnapshot(c, snapshot, revision, stored), nil
	}
	if s.history == nil {
		return listing{}, expired(fmt.Sprintf("revision %d is older than the history that is kept: list without resourceVersion", revision))
	}
	from := oneOrAll(c, selector)
	of := storage.Selection{Kind: from.Kind, Namespace: from.Namespace, Name: from.Name}
	objects, err := s.history.At(c.r.Context(), strconv.FormatInt(revision, 10), of)
	if errors.Is(err, storage.ErrCompacted) {
		return listing{}, expired(fmt.Sprintf("revision %d is not known any more: %v", revision, err))
	}
	slices.SortFunc(objects, func(a, b *config.Config) int { return cmp.Compare(a.Key().Path(), b.Key().Path()) })
	return listing{revision: revision, after: func(path string) iter.Seq[*config.Config] {
		at := sort.Search(len(objects), func(i int) bool { return objects[i].Key().Path() > path })
		return slices.Values(objects[at:])
	}}, err
}

// oneOrAll returns the object that a list selects by its name, else a key without a name.
func oneOrAll(c *call, selector selector) config.Key {
	out := c.key()
	if name, ok := selector.fields.RequiresExactMatch("metadata.name"); ok && (out.Namespace != "") != c.schema.ClusterScoped {
		out.Name = name
	}
	return out
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
