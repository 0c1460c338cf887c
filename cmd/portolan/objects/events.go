package objects

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/side"
)

// withSide returns an environment that knows the kinds beside those of the mesh, too.
func (e *environment) withSide() *environment {
	return &environment{e.With(func(e *cli.Environment) {
		e.Schemas = e.Schemas.With(schema.Side())
	})}
}

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
			if err := o.checkOutput(); err != nil {
				return err
			}
			if o.allNamespaces && o.namespace != "" {
				return exit.With(exit.Usage, errors.New("-A is all namespaces, and -n is one: leave one of them out"))
			}
			kind := schema.Side().Kind(schema.Event)
			if about != "" {
				key, of, err := oneObject(env, strings.Fields(about), o.namespace, "show the events of")
				if err != nil {
					return err
				}
				o.namespace, o.allNamespaces = key.Namespace, false
				o.fields = fields.AndSelectors(fields.OneTermEqualSelector("involvedObject.kind", of.Kind), fields.OneTermEqualSelector("involvedObject.name", key.Name)).String()
			}
			o.order = byTime
			selected := selection{kinds: []*schema.Schema{kind}}
			if o.watch.asked() {
				return o.follow(c.Context(), env, selected)
			}
			return o.run(c.Context(), env, selected)
		},
	}
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", `namespace of the events (default $PORTOLAN_NAMESPACE, else "default")`)
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show the events of all namespaces")
	f.StringVarP(&o.output, "output", "o", "table", "form of the output: "+getForms())
	f.BoolVar(&o.noHeaders, "no-headers", false, "leave the headers of tables out")
	f.StringVar(&about, "for", "", "only events of this object, as KIND/NAME")
	o.watch.register(c)
	cli.CompleteOutput(c, getOutputs...)
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
