package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
)

// Kubernetes' own kinds, such as Namespace and ConfigMap, are in a store beside that of the mesh. A
// change of both is two changes: that beside the mesh goes first, as a namespace comes before what
// is in it. Both are tried before, so that a fault in either leaves everything as it is.

const storesHelp = `

Namespaces, ConfigMaps, Leases and Events do not concern the mesh, and are kept beside it:
they are a change of their own, which goes first. Both are tried before, so that a fault in
either changes nothing.`

// withSide returns an environment that knows the kinds beside those of the mesh, too.
func (e *environment) withSide() *environment {
	return &environment{e.With(func(e *cli.Environment) { e.Schemas = cli.WithSide(e.Schemas) })}
}

// split divides a change by stores.
func (c change) split() (beside, mesh change) {
	for i, d := range c.documents {
		to := &mesh
		if cli.BesideMesh(d.Config.GroupVersionKind) {
			to = &beside
		}
		to.documents, to.operations = append(to.documents, d), append(to.operations, c.operations[i])
	}
	return beside, mesh
}

// besideFirst returns documents in the order in which deliver sends them.
func besideFirst(documents []config.Document) []config.Document {
	out := slices.Clone(documents)
	slices.SortStableFunc(out, func(a, b config.Document) int {
		switch of, other := cli.BesideMesh(a.Config.GroupVersionKind), cli.BesideMesh(b.Config.GroupVersionKind); {
		case of && !other:
			return -1
		case other && !of:
			return 1
		}
		return 0
	})
	return out
}

// poster sends the operations of a batch.
type poster func([]batch.Operation) (*batch.Result, error)

// deliver sends a change, or has the server try it. done is what becomes of the objects, such as
// "applied". The results are in the order of besideFirst, which it returns; also an error names
// the documents.
func (w *writeFlags) deliver(ctx context.Context, env *environment, c *client.Client, all change, done string, batchOf func([]batch.Operation) batch.Batch) ([]config.Document, *batch.Result, error) {
	send := func(operations []batch.Operation) (*batch.Result, error) {
		return w.send(ctx, env, c, batchOf(operations), cli.CountOf(len(operations), "object"))
	}
	if w.dry.mode == dryRunServer {
		return all.deliver(done, send, nil)
	}
	return all.deliver(done, send, func(operations []batch.Operation) (*batch.Result, error) {
		return c.Try(ctx, batchOf(operations), effect.PreviewNothing)
	})
}

// deliver sends a change. If it is of both stores, each is tried before; a nil try says that send
// is a trial itself.
func (c change) deliver(done string, send, try poster) ([]config.Document, *batch.Result, error) {
	beside, mesh := c.split()
	documents := besideFirst(c.documents)
	if len(beside.documents) == 0 || len(mesh.documents) == 0 {
		result, err := send(c.operations)
		return documents, result, cli.Refused(err, done, documents)
	}
	trial := try
	if try == nil {
		trial = send
	}
	first, errBeside := trial(beside.operations)
	second, errMesh := trial(mesh.operations)
	if err := bothRefused(errBeside, errMesh, len(beside.documents)); err != nil || try == nil {
		return documents, joined(first, second), cli.Refused(err, done, documents)
	}
	first, err := send(beside.operations)
	if err != nil {
		return nil, nil, cli.Refused(err, done, beside.documents)
	}
	if second, err = send(mesh.operations); err != nil {
		names := cli.MapSlice(beside.documents, func(d config.Document) string { return d.Config.Key().String() })
		return nil, nil, fmt.Errorf("%s: %s before, as a change of their own; of the mesh, %w", strings.Join(names, ", "), done, cli.Refused(err, done, mesh.documents))
	}
	return documents, joined(first, second), nil
}

// joined returns the results of two batches as one, of the revision of the second; nil if either
// failed.
func joined(first, second *batch.Result) *batch.Result {
	if first == nil || second == nil {
		return nil
	}
	out := *second
	out.Results = append(first.Results[:len(first.Results):len(first.Results)], second.Results...)
	out.Warnings = append(first.Warnings[:len(first.Warnings):len(first.Warnings)], second.Warnings...)
	out.Infos = first.Infos[:len(first.Infos):len(first.Infos)]
	for _, i := range second.Infos {
		out.Infos = append(out.Infos, len(first.Warnings)+i)
	}
	return &out
}

// bothRefused returns the refusals of two batches as one of a batch that has the operations of
// both; first is how many are in the first.
func bothRefused(one, two error, first int) error {
	if two == nil {
		return one
	}
	var status, other *apierrors.StatusError
	if !errors.As(two, &other) || len(cli.CausesOf(two)) == 0 {
		if one != nil {
			return one
		}
		return two
	}
	out := other.ErrStatus.DeepCopy()
	for i, cause := range out.Details.Causes {
		if operation, _, ok := batch.Index(cause.Field); ok {
			out.Details.Causes[i].Field = batch.Field(operation+first, strings.TrimPrefix(cause.Field[strings.Index(cause.Field, "]")+1:], "."))
		}
	}
	switch {
	case one == nil:
	case errors.As(one, &status) && len(cli.CausesOf(one)) > 0:
		causes := out.Details.Causes
		out = status.ErrStatus.DeepCopy()
		out.Details.Causes = append(out.Details.Causes, causes...)
	default:
		return one
	}
	return &apierrors.StatusError{ErrStatus: *out}
}

// ofMeshOnly returns a result without the objects beside the mesh, which no proxy gets.
func ofMeshOnly(result *batch.Result) *batch.Result {
	out := *result
	out.Results = nil
	for _, r := range result.Results {
		if schema.Side().Named(r.Kind) == nil {
			out.Results = append(out.Results, r)
		}
	}
	return &out
}
