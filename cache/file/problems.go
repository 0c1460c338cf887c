package file

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache"
)

// problem is a Problem of a file or a document.
type problem struct {
	Place
	cache.Problem
}

// problemTexts returns problems with their places as text.
func problemTexts(all []problem) []cache.Problem {
	out := make([]cache.Problem, len(all))
	for i, p := range all {
		out[i] = p.Problem
		out[i].Where = p.Place.String()
	}
	return out
}

// same says whether two problems are the same, whatever their times.
func (p problem) same(o problem) bool {
	return p.Place == o.Place && p.Object == o.Object && p.Message == o.Message
}

func (p problem) sameDocument(o problem) bool { return p.Document == o.Document && p.Item == o.Item }

// sameFault says whether two problems are the same, wherever the document stands.
func (p problem) sameFault(o problem) bool { return p.Object == o.Object && p.Message == o.Message }

// Problems returns all problems, in the order of files and documents. The caller must not modify
// them. The cost follows their number, not that of the files.
func (c *Cache) Problems() []cache.Problem {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if known := c.problems.Load(); known != nil {
		return *known
	}
	out := problemTexts(c.listProblems())
	c.problems.Store(&out)
	return out
}

// listProblems does the work of Problems. The caller holds mu.
func (c *Cache) listProblems() (out []problem) {
	for _, f := range c.faults {
		out = append(out, problem{Place{File: f.Path}, cache.Problem{Message: f.Err.Error(), Since: f.Since, Serving: f.Held}})
	}
	for path := range c.faulty {
		out = append(out, c.files[path].problems...)
	}
	for name := range c.torn {
		for path := range c.folders[name].strays {
			if p, contradicts := c.namespaceMismatch(path, c.files[path]); contradicts {
				out = append(out, p)
			}
		}
	}
	for path := range c.contested {
		all := c.claims[path]
		for _, one := range all[1:] {
			out = append(out, one.duplicate(all[0]))
		}
	}
	slices.SortStableFunc(out, func(a, b problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Document, b.Document), cmp.Compare(len(a.Item), len(b.Item)),
			strings.Compare(a.Item, b.Item), strings.Compare(a.Message, b.Message))
	})
	return out
}

// duplicate returns the problem of a claim that another one precedes.
func (c *claim) duplicate(first *claim) problem {
	return problem{c.Place, cache.Problem{
		Object: c.object.Key().String(), Since: c.since,
		Message: fmt.Sprintf("is there twice: %s counts", first.Place),
	}}
}

// folder is a folder directly below the directory. It belongs to a namespace if it has its name and at
// least one of its objects.
type folder struct {
	namespaces map[string]int  // the number of its objects by namespace
	strays     map[string]bool // its files with an object of another namespace than its name
}

// isTorn says whether the folder of a name belongs to a namespace, and has objects of others.
func (f *folder) isTorn(name string) bool {
	return f != nil && f.namespaces[name] > 0 && len(f.namespaces) > 1
}

// count counts an object in the folder of its file.
func (c *Cache) count(one *claim, delta int) {
	name, _, ok := strings.Cut(one.File, "/")
	if !ok {
		return
	}
	of := c.folders[name]
	if of == nil {
		of = &folder{map[string]int{}, map[string]bool{}}
		c.folders[name] = of
	}
	namespace := one.object.Namespace
	if of.namespaces[namespace] += delta; of.namespaces[namespace] == 0 {
		delete(of.namespaces, namespace)
	}
	if len(of.namespaces) == 0 {
		delete(c.folders, name)
	}
}

// index notes whether a file may have problems, once its objects are counted.
func (c *Cache) index(file string, d *document) {
	note(c.faulty, file, len(d.problems) > 0)
	name, _, ok := strings.Cut(file, "/")
	if !ok {
		return
	}
	of := c.folders[name]
	if of != nil {
		note(of.strays, file, d.stray(name) != nil)
	}
	note(c.torn, name, of.isTorn(name))
}

func note(in map[string]bool, key string, there bool) {
	if there {
		in[key] = true
	} else {
		delete(in, key)
	}
}

// stray returns the first object of another namespace than a folder's, nil for none.
func (d *document) stray(folder string) *claim {
	for _, one := range d.claims {
		if namespace := one.object.Namespace; namespace != folder && namespace != "" {
			return one
		}
	}
	return nil
}

// namespaceMismatch warns about an object in another namespace than its folder's.
func (c *Cache) namespaceMismatch(file string, d *document) (problem, bool) {
	folder, _, ok := strings.Cut(file, "/")
	if !ok || !c.folders[folder].isTorn(folder) {
		return problem{}, false
	}
	one := d.stray(folder)
	if one == nil {
		return problem{}, false
	}
	return problem{one.Place, cache.Problem{
		Object: one.object.Key().String(), Since: one.since, Serving: true, Warning: true,
		Message: fmt.Sprintf("is in the namespace %s, and other objects in the folder %s are in the namespace %s", one.object.Namespace, folder, folder),
	}}, true
}

type problemChanges struct{ added, solved []problem }

// Degraded says why the content may be old, nil if it is not. Broken documents do not
// count: Problems has them.
func (c *Cache) Degraded() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.degraded == nil {
		return nil
	}
	return fmt.Errorf("since %s: %w", c.since.UTC().Format(time.RFC3339), c.degraded)
}

// Whole says whether everything in the directory is served: it was read, and none of its
// files and documents is broken.
func (c *Cache) Whole() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.Snapshot() != nil && c.degraded == nil && len(c.faults) == 0 && len(c.faulty) == 0
}

// Status is the state of a directory.
type Status struct {
	// Dir is the directory, as the options name it.
	Dir string
	// Files is the number of files read, Objects of objects served, Broken of documents
	// and files with a fault.
	Files, Objects, Broken int
	// LastChange is when the newest snapshot was made.
	LastChange time.Time
	// Degraded says why the content may be old; Since is since when.
	Degraded error
	Since    time.Time
}

// Status returns the present state of the directory.
func (c *Cache) Status() Status {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := Status{
		Dir: c.o.Dir, Files: len(c.files), Objects: len(c.claims), LastChange: c.lastChange,
		Broken: len(c.faults) + len(c.contested), Degraded: c.degraded, Since: c.since,
	}
	for path := range c.faulty {
		s.Broken += len(c.files[path].problems)
	}
	return s
}

// Ready says why the directory is not read yet, nil once it is.
func (c *Cache) Ready() error {
	if c.Snapshot() != nil {
		return nil
	}
	return cmp.Or(c.Degraded(), errors.New("the directory "+c.o.Dir+" is not read yet"))
}

func (c *Cache) collectors() []prometheus.Collector {
	gauge := func(name, help string, value func(Status) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(c.Status()) })
	}
	return []prometheus.Collector{
		gauge("portolan_config_dir_files", "Files of the directory that are read.", func(s Status) float64 { return float64(s.Files) }),
		gauge("portolan_config_dir_objects", "Objects that the directory holds.", func(s Status) float64 { return float64(s.Objects) }),
		gauge("portolan_config_dir_broken", "Files and documents that have a fault; what they last held is served.",
			func(s Status) float64 { return float64(s.Broken) }),
		gauge("portolan_config_dir_snapshots", "Contents that the directory has had since the start.",
			func(Status) float64 { return float64(c.Snapshot().Revision()) }),
		gauge("portolan_config_dir_degraded", "1 while the directory cannot be read, so that what is served may be old.", func(s Status) float64 {
			if s.Degraded != nil {
				return 1
			}
			return 0
		}),
	}
}
