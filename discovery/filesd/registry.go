package filesd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/files"
)

// Registry is a discovery.Instance of provider File. Its queries may be called from any
// goroutine. The worker calls service handlers after it has published the rows of the service.
// Workload handlers are never called: a target belongs to the one service that it names.
type Registry struct {
	discovery.Published // the publisher, for reading

	o         Options
	publisher *discovery.Publisher
	synced    atomic.Bool

	mu      sync.Mutex // guards the fields below
	sources []*source  // in the order of Options.Files

	written map[key][]*target // the rows written last; only the worker uses it
}

// source is one file.
type source struct {
	name     string
	settled  bool    // it was read, or its time to be read is over
	known    *listed // its last content that could be read; never nil
	problem  error   // why its content may be old; nil if it is not
	since    time.Time
	degraded error // fault of the file, from files.Follow
	broken   error // fault of the content, from parse
}

var _ discovery.Instance = (*Registry)(nil)

// New makes a registry. It reads nothing before Run.
func New(o Options) (*Registry, error) {
	o.Files = slices.Clone(o.Files)
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("endpoints of files: %w", err)
	}
	publisher := discovery.NewPublisher(discovery.ShardKey{Provider: discovery.File, Cluster: o.Cluster}, o.XDS)
	r := &Registry{Published: publisher, publisher: publisher, o: o, written: map[key][]*target{}}
	for _, name := range o.Files {
		r.sources = append(r.sources, &source{name: name, known: &listed{}})
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(collector{r})
	}
	return r, nil
}

// HasSynced returns true once the rows of all files were published. It does not wait longer
// than Options.Patience for a file that cannot be read.
func (r *Registry) HasSynced() bool { return r.synced.Load() }

// Run follows the files until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	r.publisher.Close()
	var running sync.WaitGroup
	var mu sync.Mutex // guards failed
	var failed []error
	for _, s := range r.sources {
		running.Go(func() {
			err := files.Follow(ctx, files.Options[*listed]{
				Path: s.name, Single: true, Timing: r.o.Timing,
				Parse:  func(_ string, data []byte) *listed { return r.o.parse(s.name, data) },
				Update: func(u files.Update[*listed]) { r.update(s, u) },
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	running.Go(func() {
		patience := time.NewTimer(r.o.Patience)
		defer patience.Stop()
		select {
		case <-ctx.Done():
		case <-patience.C:
			r.endWait(r.sources...)
		}
	})
	running.Wait()
	return errors.Join(failed...)
}

// endWait ends the wait for files that were not read yet.
func (r *Registry) endWait(of ...*source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range of {
		s.settled = true
	}
	r.post()
}

// update handles a change of a file or of its health.
func (r *Registry) update(s *source, u files.Update[*listed]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.degraded = u.Degraded
	for _, change := range u.Changes {
		switch {
		case change.Gone: // never happens to a single file
		case change.Value.err != nil:
			s.broken = change.Value.err
		default:
			s.broken = nil
			if !slices.Equal(s.known.flaws, change.Value.flaws) {
				r.logFlaws(change.Value.flaws)
			}
			s.known, s.settled = change.Value, true
		}
	}
	r.updateFlaws(s)
	r.post()
}

// updateFlaws updates what is wrong with a file, and since when.
func (r *Registry) updateFlaws(s *source) {
	now := s.degraded
	if s.broken != nil {
		now = cmp.Or(now, fmt.Errorf("%s cannot be read, what it last listed is served: %w", s.name, s.broken))
	}
	if now != nil && (s.problem == nil || now.Error() != s.problem.Error()) {
		r.o.Logger.Warn("a file of endpoints is at fault", "file", s.name, "err", now)
	}
	if now == nil && s.problem != nil {
		r.o.Logger.Info("a file of endpoints is read again", "file", s.name)
	}
	if (now == nil) != (s.problem == nil) {
		s.since = time.Now()
	}
	s.problem = now
}

// maxLogged is how many flaws of one file are logged at a time.
const maxLogged = 10

func (r *Registry) logFlaws(flaws []Flaw) {
	for _, f := range flaws[:min(len(flaws), maxLogged)] {
		r.o.Logger.Warn("targets are at fault", "file", f.File, "group", f.Group, "target", f.Target, "reason", f.Reason)
	}
	if more := len(flaws) - maxLogged; more > 0 {
		r.o.Logger.Warn("more targets are at fault", "targets", more)
	}
}

// post has the worker write what all files list now. It must be called with mu held.
func (r *Registry) post() {
	var all []*listed
	settled := true
	for _, s := range r.sources {
		all = append(all, s.known)
		settled = settled && s.settled
	}
	wanted := grouped(all)
	r.o.Worker.Post(r, func() {
		r.write(wanted)
		if settled && !r.synced.Load() {
			r.o.Worker.Then(func() { r.synced.Store(true) })
		}
	})
}

// write publishes the rows that differ. It runs on the worker.
func (r *Registry) write(wanted map[key][]*target) {
	var concerned []key
	for k, targets := range wanted {
		if !same(r.written[k], targets) {
			concerned = append(concerned, k)
		}
	}
	for k := range r.written {
		if len(wanted[k]) == 0 {
			concerned = append(concerned, k)
		}
	}
	r.written = wanted
	slices.SortFunc(concerned, func(a, b key) int {
		return cmp.Or(strings.Compare(string(a.hostname), string(b.hostname)), strings.Compare(a.namespace, b.namespace))
	})
	var rows []discovery.Row
	for _, k := range concerned {
		rows = append(rows, rowOf(k, wanted[k]))
	}
	r.publisher.Publish(rows...)
}
