package objects

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
)

const chunksHelp = `

What is too large for one change of the store is refused, unless --chunks N
divides it: parts of at most N objects, in the order of the files and deletions
last, are a change each. Proxies see part after part then, and where one fails,
those before it stay.`

// change is everything that one apply does: the documents, and the operation on each.
type change struct {
	documents  []config.Document
	operations []batch.Operation
}

// part is a part of a change, applied as a change of its own. Objects are counted from 1.
type part struct {
	change
	number, total int
	first, last   int
}

func (p part) String() string {
	return fmt.Sprintf("part %d of %d: objects %d-%d", p.number, p.total, p.first, p.last)
}

// parts splits a change into parts of at most size objects, each of one store.
func (c change) parts(size int) (out []part) {
	beside, mesh := c.split()
	before := 0
	for _, one := range []change{beside, mesh} {
		total := len(one.documents)
		for from := 0; from < total; from += size {
			to := min(from+size, total)
			out = append(out, part{change: change{one.documents[from:to], one.operations[from:to]}, first: before + from + 1, last: before + to})
		}
		before += total
	}
	for i := range out {
		out[i].number, out[i].total = i+1, len(out)
	}
	return out
}

// sendParts applies a change in parts, each within --request-timeout, up to the
// first that fails.
func (o *applyOptions) sendParts(ctx context.Context, env *environment, all change) error {
	for _, p := range all.parts(o.chunks) {
		var result *batch.Result
		err := env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
			result, err = o.send(ctx, env, c, o.batch(p.operations), p.String())
			if err != nil {
				return hintForce(cli.Refused(err, "applied of this part", p.documents))
			}
			o.announce(env, p, result)
			return o.report(env, p.documents, result, nil)
		})
		if err != nil {
			return fmt.Errorf("%s: %s: %w", p, o.progress(p, len(all.documents), err), err)
		}
		if err := o.await(ctx, env, result); err != nil {
			return fmt.Errorf("%s: objects 1-%d were applied: %w", p, p.last, err)
		}
	}
	return nil
}

// announce prints which part was applied. Output for programs has one document per part.
func (o *applyOptions) announce(env *environment, p part, result *batch.Result) {
	revision, out := "rev "+result.Revision, env.Stdout
	if o.dry.mode == dryRunServer {
		revision = "dry run"
	}
	if o.output != "table" {
		out = env.Stderr
	}
	fmt.Fprintf(out, "%s: %s\n", p, revision)
	if o.output == "yaml" && p.number > 1 {
		fmt.Fprintln(env.Stdout, "---")
	}
}

// progress describes what was applied before part p failed, and what was not.
func (o *applyOptions) progress(p part, total int, err error) string {
	done, rest := "nothing was applied before it", fmt.Sprintf("objects %d-%d were not applied", p.first, total)
	if p.number > 1 {
		done = fmt.Sprintf("objects 1-%d were applied", p.first-1)
	}
	if o.dry.mode == dryRunServer {
		return "dry run, nothing is applied"
	}
	if !outcomeUnknown(err) {
		return done + ", " + rest
	}
	rest = "nothing follows it"
	if p.last < total {
		rest = fmt.Sprintf("objects %d-%d were not applied", p.last+1, total)
	}
	return fmt.Sprintf("%s, of objects %d-%d it is not known, %s", done, p.first, p.last, rest)
}

// outcomeUnknown says whether a change may have been made although the call failed.
func outcomeUnknown(err error) bool {
	var unreachable *call.UnreachableError
	return errors.As(err, &unreachable) && unreachable.Unknown || apierrors.IsTimeout(err)
}

// hintChunks adds a hint to --chunks to the error of a change that is too large as a whole.
func hintChunks(err error) error {
	if !apierrors.IsRequestEntityTooLargeError(err) {
		return err
	}
	before := "nothing was applied: "
	if strings.HasPrefix(err.Error(), before) { // the error names one object, which is too large
		before = ""
	}
	return fmt.Errorf("%s%w (--chunks N applies parts of at most N objects, each a change of its own)", before, err)
}
