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

// shown returns problems with their places.
func shown(all []problem) []cache.Problem {
	out := make([]cache.Problem, len(all))
	for i, p := range all {
		out[i] = p.Problem
		out[i].Where = p.Place.String()
	}
	return out
}

// same says whether two problems are the same whatever their time.
func (p problem) same(o problem) bool {
	return p.Place == o.Place && p.Object == o.Object && p.Message == o.Message
}

// sameDocument says whether two problems of a file are of the same document.
func (p problem) sameDocument(o problem) bool { return p.Document == o.Document && p.Item == o.Item }

// sameFault says whether two problems are the same wherever the document stands.
func (p problem) sameFault(o problem) bool { return p.Object == o.Object && p.Message == o.Message }

// Problems returns all that is wrong, in the order of files and documents.
func (c *Cache) Problems() []cache.Problem {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []problem
	for _, f := range c.faults {
		out = append(out, problem{Place{File: f.Path}, cache.Problem{Message: f.Err.Error(), Since: f.Since, Serving: f.Held}})
	}
	for path, d := range c.files {
		out = append(out, d.problems...)
		if p, contradicts := c.contradiction(path, d); contradicts {
			out = append(out, p)
		}
	}
	for path := range c.contested {
		all := c.claims[path]
		for _, one := range all[1:] {
			out = append(out, one.second(all[0]))
		}
	}
	slices.SortStableFunc(out, func(a, b problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Document, b.Document), cmp.Compare(len(a.Item), len(b.Item)),
			strings.Compare(a.Item, b.Item), strings.Compare(a.Message, b.Message))
	})
	return shown(out)
}

// second is the problem of a claim that another comes before.
func (c *claim) second(first *claim) problem {
	return problem{c.Place, cache.Problem{
		Object: c.object.Key().String(), Since: c.since,
		Message: fmt.Sprintf("is there twice: %s counts", first.Place),
	}}
}

// count keeps how many objects of a namespace each folder below the directory has.
func (c *Cache) count(one *claim, by int) {
	folder, _, ok := strings.Cut(one.File, "/")
	if !ok {
		return
	}
	of := c.folders[folder]
	if of == nil {
		of = map[string]int{}
		c.folders[folder] = of
	}
	namespace := one.object.Namespace
	if of[namespace] += by; of[namespace] == 0 {
		delete(of, namespace)
	}
	if len(of) == 0 {
		delete(c.folders, folder)
	}
}

// contradiction warns of objects in another namespace than their folder's. A folder
// directly below the directory is a namespace's if it is named as one and has an object
// of it.
func (c *Cache) contradiction(file string, d *document) (problem, bool) {
	folder, _, ok := strings.Cut(file, "/")
	if of := c.folders[folder]; !ok || of[folder] == 0 || len(of) == 1 {
		return problem{}, false
	}
	for _, one := range d.claims {
		if namespace := one.object.Namespace; namespace != folder && namespace != "" {
			return problem{one.Place, cache.Problem{
				Object: one.object.Key().String(), Since: one.since, Serving: true, Warning: true,
				Message: fmt.Sprintf("is in the namespace %s, and other objects in the folder %s are in the namespace %s", namespace, folder, folder),
			}}, true
		}
	}
	return problem{}, false
}

// turns are what an update has made wrong, and what it has made right.
type turns struct{ news, gone []problem }

// Degraded says why what is known may be old, nil where it is not. Broken documents do
// not count: Problems has them.
func (c *Cache) Degraded() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.degraded == nil {
		return nil
	}
	return fmt.Errorf("since %s: %w", c.since.UTC().Format(time.RFC3339), c.degraded)
}

// Whole says whether all that the directory holds is served: it was read, and no file and
// no document of it is broken.
func (c *Cache) Whole() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.Snapshot() == nil || c.degraded != nil || len(c.faults) > 0 {
		return false
	}
	for _, d := range c.files {
		if len(d.problems) > 0 {
			return false
		}
	}
	return true
}

// Status is how a directory is doing.
type Status struct {
	// Dir is the directory, as the options name it.
	Dir string
	// Files are those read, Objects those served, Broken the documents and files that
	// have a fault.
	Files, Objects, Broken int
	// LastChange is when the newest snapshot was made.
	LastChange time.Time
	// Degraded says why what is known may be old, and Since since when.
	Degraded error
	Since    time.Time
}

// Status returns how the directory is doing now.
func (c *Cache) Status() Status {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := Status{
		Dir: c.o.Dir, Files: len(c.files), Objects: len(c.claims), LastChange: c.lastChange,
		Broken: len(c.faults) + len(c.contested), Degraded: c.degraded, Since: c.since,
	}
	for _, d := range c.files {
		s.Broken += len(d.problems)
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
