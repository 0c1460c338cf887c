package objects

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/side"
)

func newEventsCommand(env *environment) *cobra.Command {
	var o getOptions
	var about string
	c := &cobra.Command{
		Use:   "events",
		Short: "Show what happened to objects",
		Long: `Show what happened to objects in the last hour: where one went bad and why, that
proxies have taken it, and what controllers tell of it. What is told again has a
count. The newest come last.

Who changed what is in portolan audit, and how an object is now in portolan describe.`,
		Example: `  portolan events -n shop
  portolan events --for vs/reviews -n shop
  portolan events -A -w`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cmp.Or(o.checkOutput(), cli.OneScope(o.allNamespaces, o.namespace != "")); err != nil {
				return err
			}
			kind := schema.Side().Kind(schema.Event)
			if about != "" {
				key, _, err := oneObject(env.withSide(), strings.Fields(about), o.namespace, "show the events of")
				if err != nil {
					return err
				}
				o.namespace, o.allNamespaces = key.Namespace, false
				o.fields = involving(key)
			}
			o.order = byTime
			return o.show(c.Context(), env, selection{kinds: []*schema.Schema{kind}})
		},
	}
	o.registerShow(c, "events")
	c.Flags().StringVar(&about, "for", "", "only events of this object, as KIND/NAME")
	_ = c.RegisterFlagCompletionFunc("for", completeObjects(env))
	return c
}

// byTime orders events by when they last happened.
func byTime(a, b *unstructured.Unstructured) int {
	return cmp.Or(lastOf(a).Compare(lastOf(b)), cmp.Compare(a.GetName(), b.GetName()))
}

// lastOf returns when an event last happened, as far as that is known.
func lastOf(object *unstructured.Unstructured) time.Time {
	spec, _ := specOf(schema.Side().Kind(schema.Event), object)
	if e, ok := spec.(*side.Event); ok && !e.Last().IsZero() {
		return e.Last()
	}
	return created(object)
}
