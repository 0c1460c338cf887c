package objects

import (
	"context"
	"errors"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
)

// revisionFlags say which revisions diff compares, and of which objects.
type revisionFlags struct {
	from, to      int64 // 0 means the current state
	allNamespaces bool
}

func (r *revisionFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.Int64Var(&r.from, "from", 0, "compare what is stored with what it was at this revision")
	f.Int64Var(&r.to, "to", 0, "compare with this revision instead of now")
	f.BoolVarP(&r.allNamespaces, "all-namespaces", "A", false, "compare the objects of all namespaces; for --from")
}

// comparesRevisions says whether to compare revisions rather than files.
func (r *revisionFlags) comparesRevisions(c *cobra.Command) bool {
	return c.Flags().Changed("from") || c.Flags().Changed("to") || r.allNamespaces
}

func (r *revisionFlags) check(c *cobra.Command) error {
	if !c.Flags().Changed("from") {
		return exit.With(exit.Usage, errors.New("--to and -A need --from: the revision to compare with"))
	}
	if err := checkRevision("--from", r.from); err != nil || !c.Flags().Changed("to") {
		return err
	}
	return checkRevision("--to", r.to)
}

// run shows what changed from one revision to the other.
func (r *revisionFlags) run(ctx context.Context, env *environment, s scope) error {
	var before, after state
	err := env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		if before, err = s.at(ctx, c, r.from); err != nil {
			return err
		}
		after, err = s.at(ctx, c, r.to)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.demand(before, after); err != nil {
		return err
	}
	found := false
	for _, key := range s.keysOf(before, after) {
		text, err := differenceBetween(key, before.objects[key], after.objects[key])
		if err != nil {
			return err
		}
		found = found || text != ""
		if err := cli.WriteDiff(env.Stdout, text); err != nil {
			return err
		}
	}
	if found {
		return cli.ErrDifferences
	}
	return nil
}

// differenceBetween returns how an object changed; nil means no object.
func differenceBetween(key config.Key, before, after *unstructured.Unstructured) (string, error) {
	labelBefore, textBefore, err := sideText(key, before)
	if err != nil {
		return "", err
	}
	labelAfter, textAfter, err := sideText(key, after)
	if err != nil {
		return "", err
	}
	return udiff.Unified(labelBefore, labelAfter, textBefore, textAfter), nil
}

func sideText(key config.Key, object *unstructured.Unstructured) (label, text string, err error) {
	if object == nil {
		return cli.Nowhere, "", nil
	}
	text, err = comparableText(object, false)
	return key.String() + "\trev " + object.GetResourceVersion(), text, err
}
