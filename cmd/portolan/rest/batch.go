package rest

import (
	"net/http"
	"slices"

	"github.com/hashicorp/go-multierror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

func (s *Server) batches(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, func(c *call) error {
		c.kind = batch.Kind
		if r.Method != http.MethodPost {
			c.w.Header().Set("Allow", "POST")
			return methodNotAllowed(c)
		}
		c.verb = "create"
		if err := s.authenticate(c); err != nil {
			return err
		}
		return s.apply(c)
	})
}

// apply does all operations of a batch or none.
func (s *Server) apply(c *call) error {
	request, err := s.readBatch(c)
	if err != nil {
		return err
	}
	return s.keeping(request.Operations).applyAs(c, request)
}

func (s *Server) applyAs(c *call, request *request) error {
	trial, err := s.rehearse(c, c.query["dryRun"])
	if err != nil {
		return err
	}
	preview, err := previewOf(c.query, trial)
	if err != nil {
		return err
	}
	if preview == effect.PreviewResources || preview == effect.PreviewBodies {
		if err := s.authorize(c, access.Request{Verb: "get", Group: batch.Group, Version: batch.Version, Resource: "proxyconfig", Path: c.r.URL.Path}); err != nil {
			return err
		}
	}
	b := &batchCall{server: s, call: c, force: request.Force, serverSide: request.ServerSide, places: map[config.Key]int{}}
	c.setMessage(request.Message, &b.faults)
	c.checkManager(&b.faults)
	if err := b.read(request.Operations); err != nil {
		return err
	}
	if err := b.strictRefusal(request.Strict); err != nil {
		return err
	}
	for i, op := range b.ops {
		var learnt bool
		if b.ops[i], learnt = s.asStored(c.r.Context(), op); !learnt {
			b.unlearnt = append(b.unlearnt, i)
		}
	}
	for i, op := range b.ops {
		if len(b.odd[i]) > 0 {
			b.ops[i].KeepSpec = s.keepSpec(op)
		}
	}
	if err := b.ofSources(); err != nil {
		return b.refused(err)
	}
	if err := s.checkRoom(b.ops...); err != nil {
		return err
	}
	if err := b.seal(trial != nil); err != nil {
		return b.refused(err)
	}
	b.before = s.cache.Snapshot()
	revision, results, err := s.batcher(trial).Apply(c.r.Context(), b.ops)
	if err != nil {
		return b.refused(err)
	}
	if trial == nil {
		asServed(s.await(c.r.Context(), revision), results)
	}
	answer := b.result(revision, results)
	b.healthOf(&answer, results, trial != nil)
	if preview != effect.PreviewNothing {
		if err := s.preview(trial, b.ops, preview, &answer); err != nil {
			return err
		}
	}
	writeJSON(c.w, http.StatusOK, answer)
	return nil
}

// ofSources returns an error for each operation on an object that another source
// prevents or that only servers may write.
func (b *batchCall) ofSources() error {
	var found *multierror.Error
	for i, op := range b.ops {
		if err := b.server.mayStore(b.call, op); err != nil {
			found = multierror.Append(found, &storage.OpError{Index: i, Err: err})
		}
	}
	return found.ErrorOrNil()
}

// seal replaces the objects in the operations by their stored form, with secrets sealed.
func (b *batchCall) seal(trial bool) error {
	var found *multierror.Error
	for i, op := range b.ops {
		sealed, err := b.server.sealed(b.call.r.Context(), op, trial)
		if err != nil {
			found = multierror.Append(found, &storage.OpError{Index: i, Err: err})
		}
		b.ops[i] = sealed
	}
	return found.ErrorOrNil()
}

// asServed sets the versions of results to the served versions of their objects, as far
// as the snapshot has them. The snapshot may be nil.
func asServed(snapshot *cache.Snapshot, results []storage.Result) {
	for i, r := range results {
		if object := snapshot.Get(r.Key); object != nil && object.ResourceVersion == r.ResourceVersion {
			results[i].ResourceVersion = withStatus(snapshot, object).ResourceVersion
		}
	}
}

// result returns the answer to a batch that was done.
func (b *batchCall) result(revision string, results []storage.Result) batch.Result {
	answer := batch.Result{
		TypeMeta: metav1.TypeMeta{Kind: batch.ResultKind, APIVersion: batch.APIVersion},
		Revision: revision, Results: make([]batch.Outcome, len(results)), Warnings: b.warnings,
	}
	for i, severity := range b.severity {
		if severity == slices.Index(finding.Severities, "info") {
			answer.Infos = append(answer.Infos, i)
		}
	}
	for i, r := range results {
		answer.Results[i] = batch.Outcome{
			Kind: r.Key.Kind.Kind, Namespace: r.Key.Namespace, Name: r.Key.Name,
			Outcome: string(r.Outcome), ResourceVersion: r.ResourceVersion, Dangling: b.dangling[i],
		}
		switch r.Outcome {
		case storage.Deleted:
			answer.Results[i].Note = b.server.replacementAfterDelete(b.before, r.Key)
		case storage.Created:
			if beside := b.before.Beside(r.Key); beside != nil {
				answer.Results[i].Note = "is used instead of the object of the source " + b.server.originOf(beside)
			}
		}
	}
	return answer
}

type batchCall struct {
	server            *Server
	call              *call
	force, serverSide bool // see batch.Batch

	ops      []storage.Op       // in the order of the request, with the unreadable ones
	unlearnt []int              // those that name a version which this server does not know yet
	places   map[config.Key]int // index of the operation of each object so far
	faults   faults
	taken    *multierror.Error // conflicts with those who have applied fields of the objects
	denied   []metav1.StatusCause
	unjudged error              // why the rights of the caller cannot be checked now
	odd      [][]schema.Warning // the warnings of its schema, by operation
	warnings []string
	severity []int // index of finding.Severities, by warning
	before   *cache.Snapshot
	dangling [][]string // by operation, the objects that refer to the one that it deletes
}
