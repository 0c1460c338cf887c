package file

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/files"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// DefaultNamespace is the namespace of objects that name none, as in portolan apply.
const DefaultNamespace = "default"

// Options configure a Cache. Dir and Worker are required.
type Options struct {
	// Dir is the directory. It need not exist yet.
	Dir string
	// Worker runs the handlers.
	Worker *cache.Worker
	// Schemas are the kinds of the mesh. The cache has those that need not be in the store.
	Schemas schema.Set
	// Domain is the domain of all objects (config.Meta).
	Domain string
	// Namespace is the namespace of objects that name none; empty is DefaultNamespace.
	Namespace string
	// Timing, MaxSize and MaxFiles are passed to package files.
	files.Timing
	MaxSize  int64
	MaxFiles int
	// History and HistoryMemory are passed to cache.FeedOptions.
	History       int
	HistoryMemory int64
	// Log gets messages; it may be nil.
	Log *slog.Logger
	// Registerer registers the metrics, with Dir as their label dir; nil for none.
	Registerer prometheus.Registerer
}

// Cache is a read-only cache.ConfigStoreCache over a directory.
type Cache struct {
	*cache.Feed
	o Options

	// Only the goroutine of Run uses these fields.
	configs  pmap.Map[*config.Config]
	revision int64

	mu         sync.RWMutex // guards the fields below
	files      map[string]*document
	claims     map[string][]*claim // by the Path of the key, the one that counts first
	contested  map[string]bool     // keys with several claims
	faulty     map[string]bool     // files with problems of their own
	folders    map[string]*folder
	torn       map[string]bool // folders that are torn
	faults     []files.Fault
	degraded   error
	since      time.Time
	lastChange time.Time

	problems atomic.Pointer[[]cache.Problem] // what Problems returns; nil if that is to be listed anew
}

var _ cache.ConfigStoreCache = (*Cache)(nil)

// New returns a cache that waits for Run.
func New(o Options) *Cache {
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	kinds := slices.DeleteFunc(slices.Clone(o.Schemas.All()), func(kind *schema.Schema) bool { return ofStoreAlone(kind) != "" })
	c := &Cache{
		Feed: cache.NewFeed(cache.FeedOptions{
			Worker: o.Worker, Schemas: schema.NewSet(kinds...), History: o.History, HistoryMemory: o.HistoryMemory,
		}),
		o: o, files: map[string]*document{}, claims: map[string][]*claim{}, contested: map[string]bool{},
		faulty: map[string]bool{}, folders: map[string]*folder{}, torn: map[string]bool{},
	}
	if o.Registerer != nil {
		prometheus.WrapRegistererWith(prometheus.Labels{"dir": o.Dir}, o.Registerer).MustRegister(c.collectors()...)
	}
	return c
}

// Run follows the directory until ctx ends, and then returns nil. It publishes the first
// snapshot once it has read the whole directory.
func (c *Cache) Run(ctx context.Context) error {
	if err := c.Seal(); err != nil {
		return err
	}
	return files.Follow(ctx, files.Options[*parsed]{
		Path: c.o.Dir, Parse: c.parse, Update: c.update, Timing: c.o.Timing, MaxSize: c.o.MaxSize, MaxFiles: c.o.MaxFiles,
	})
}

// claim is an object of a document. It is never modified.
type claim struct {
	Place
	n      int // its place among the claims of the file
	path   string
	object *config.Config
	since  time.Time
}

func compareClaims(a, b *claim) int {
	return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.n, b.n))
}

// document is the content of a file, and its problems.
type document struct {
	claims   []*claim
	problems []problem
	cut      bool // it ends as if the disk had been full
}

// update applies the changes of the directory, and publishes a snapshot if objects
// differ.
func (c *Cache) update(u files.Update[*parsed]) {
	configs := c.configs
	c.mu.Lock()
	c.recordState(u)
	concerned := map[string]bool{}
	var changes problemChanges
	for _, change := range u.Changes {
		c.apply(change, concerned, &changes)
	}
	for _, path := range slices.Sorted(maps.Keys(concerned)) {
		configs = c.resolve(configs, path, &changes)
	}
	first := u.Begun && c.Snapshot() == nil
	differs := configs != c.configs
	if differs || first {
		c.lastChange = time.Now()
	}
	c.problems.Store(nil)
	c.mu.Unlock()
	cache.LogProblems(c.o.Log.With("dir", c.o.Dir), problemTexts(changes.added), problemTexts(changes.solved))
	if differs || first {
		c.revision++
		c.configs = configs
		c.Publish(c.Snapshot().Next(c.revision, cache.Content{Configs: configs}))
	}
}

// recordState records and logs the state of the directory.
func (c *Cache) recordState(u files.Update[*parsed]) {
	if (c.degraded == nil) != (u.Degraded == nil) {
		if u.Degraded != nil {
			c.o.Log.Warn("a directory of configuration cannot be followed", "dir", c.o.Dir, "err", u.Degraded)
		} else {
			c.o.Log.Info("a directory of configuration is followed again", "dir", c.o.Dir)
		}
	}
	c.degraded, c.since = u.Degraded, u.Since
	known := map[string]string{}
	for _, f := range c.faults {
		known[f.Path] = f.Err.Error()
	}
	for _, f := range u.Faults {
		if known[f.Path] != f.Err.Error() {
			c.o.Log.Warn("a file of configuration cannot be read", "dir", c.o.Dir, "file", f.Path, "kept", f.Held, "err", f.Err)
		}
	}
	for path := range known {
		if !slices.ContainsFunc(u.Faults, func(f files.Fault) bool { return f.Path == path }) {
			c.o.Log.Info("a file of configuration can be read again, or is gone", "dir", c.o.Dir, "file", path)
		}
	}
	c.faults = u.Faults
}

// apply replaces the content of a file that was read or is gone. It adds the paths of
// the affected keys to concerned, and new and solved problems to said.
func (c *Cache) apply(change files.Change[*parsed], concerned map[string]bool, problems *problemChanges) {
	old := c.files[change.Path]
	if old == nil {
		old = &document{}
	}
	next := &document{}
	if !change.Gone {
		next = keepLastGood(change.Path, old, change.Value, time.Now())
	}
	for _, gone := range old.claims {
		concerned[gone.path] = true
		c.count(gone, -1)
		c.claims[gone.path] = slices.DeleteFunc(c.claims[gone.path], func(o *claim) bool { return o == gone })
	}
	for _, one := range next.claims {
		concerned[one.path] = true
		c.count(one, +1)
		all := c.claims[one.path]
		at, _ := slices.BinarySearchFunc(all, one, compareClaims)
		c.claims[one.path] = slices.Insert(all, at, one)
	}
	c.index(change.Path, next)
	for _, p := range old.problems {
		if !slices.ContainsFunc(next.problems, func(o problem) bool { return o.sameDocument(p) || o.sameFault(p) }) {
			problems.solved = append(problems.solved, p)
		}
	}
	if change.Gone {
		delete(c.files, change.Path)
		return
	}
	c.files[change.Path] = next
	for _, p := range next.problems {
		if !slices.ContainsFunc(old.problems, p.same) {
			problems.added = append(problems.added, p)
		}
	}
	if p, contradicts := c.namespaceMismatch(change.Path, next); contradicts {
		if _, did := c.namespaceMismatch(change.Path, old); !did {
			problems.added = append(problems.added, p)
		}
	}
}

// resolve makes the first claim of a key count.
func (c *Cache) resolve(configs pmap.Map[*config.Config], path string, problems *problemChanges) pmap.Map[*config.Config] {
	all := c.claims[path]
	if was := c.contested[path]; len(all) > 1 {
		c.contested[path] = true
		if !was {
			problems.added = append(problems.added, all[1].duplicate(all[0]))
		}
	} else {
		if c.contested[path] && len(all) == 1 {
			problems.solved = append(problems.solved, problem{all[0].Place, cache.Problem{Object: all[0].object.Key().String()}})
		}
		delete(c.contested, path)
	}
	if len(all) == 0 {
		delete(c.claims, path)
		return configs.Delete(path)
	}
	if held := configs.Value(path); held != nil && held.ResourceVersion == all[0].object.ResourceVersion {
		return configs
	}
	return configs.Set(path, all[0].object)
}

// keepLastGood returns the new content of a file: all its sound documents and, as long as
// another document is broken, also the file's previous objects.
func keepLastGood(file string, old *document, now *parsed, at time.Time) *document {
	next := &document{cut: now.cut}
	if now.cut && len(old.claims) > 0 && !old.cut {
		next.cut, next.claims = false, old.claims
		next.problems = []problem{since(old, problem{Place{File: file}, cache.Problem{
			Serving: true, Since: at,
			Message: "ends in the middle of a line, as if a disk had been full: its last content is kept; end it with a line feed if it is meant so",
		}})}
		return next
	}
	taken := map[string]bool{}
	for i, one := range now.objects {
		one := &claim{Place: one.Place, n: i, path: one.object.Meta.Key().Path(), object: one.object, since: at}
		one.File = file
		if i := slices.IndexFunc(old.claims, func(o *claim) bool { return o.path == one.path }); i >= 0 {
			one.since = old.claims[i].since
			if old.claims[i].object.ResourceVersion == one.object.ResourceVersion {
				one.object = old.claims[i].object
			}
		}
		taken[one.path] = true
		next.claims = append(next.claims, one)
	}
	kept := map[string]bool{} // Key.String
	if len(now.broken) > 0 {
		for _, o := range old.claims {
			if !taken[o.path] {
				taken[o.path], kept[o.object.Key().String()] = true, true
				stays := *o
				stays.n = len(next.claims)
				next.claims = append(next.claims, &stays)
			}
		}
	}
	for _, b := range now.broken {
		p := problem{b.Place, cache.Problem{Object: b.object, Message: b.message, Since: at, Serving: kept[b.object]}}
		p.File = file
		if !p.Serving {
			p.Serving = slices.ContainsFunc(next.claims, func(o *claim) bool {
				key := o.object.Key().String()
				return kept[key] && !now.names(key) && (b.object == "" || o.Document == b.Document && o.Item == b.Item)
			})
		}
		next.problems = append(next.problems, since(old, p))
	}
	return next
}

// since returns a problem with the time since when the document has one.
func since(old *document, p problem) problem {
	for _, o := range old.problems {
		if o.sameDocument(p) {
			p.Since = o.Since
			break
		}
	}
	return p
}

// FileOf returns the document of an object; false if there is none.
func (c *Cache) FileOf(key config.Key) (Place, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := c.claims[key.Path()]
	if len(all) == 0 {
		return Place{}, false
	}
	return all[0].Place, true
}
