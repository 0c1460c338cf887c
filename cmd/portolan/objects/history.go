package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/storage/config"
)

type historyOptions struct {
	namespace string
	limit     int
	output    string
}

func newHistoryCommand(env *environment) *cobra.Command {
	var o historyOptions
	c := &cobra.Command{
		Use:   "history (KIND NAME | KIND/NAME)",
		Short: "Show who changed an object, when and how",
		Long: `Show the changes of an object, newest first, also of one that was deleted. The history is
that of the store: of an object of another source, such as a cluster, it knows nothing.

REV is the revision of the store, by which get --revision, diff --from and
rollback --to-revision find the object as it was. WHO is the user who
has proved it, or "local" on the machine of the server; FROM is what the client said
of itself, and its address where it was another machine. CHANGE is the first field
that differs.`,
		Example: `  portolan history vs/reviews -n shop
  portolan get vs/reviews -n shop --revision 812 -o yaml
  portolan diff vs/reviews -n shop --from 812`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errOneObject
			}
			return cobra.MaximumNArgs(2)(c, args)
		},
		ValidArgsFunction: completeObjects(env),
		RunE: func(c *cobra.Command, args []string) error {
			key, err := o.key(env, args)
			if err != nil {
				return err
			}
			return o.run(c.Context(), env, key)
		},
	}
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", `namespace of the object (default $PORTOLAN_NAMESPACE, else "default")`)
	f.IntVar(&o.limit, "limit", 20, "how many changes to show, the newest; 0 is all")
	cli.RegisterOutput(c, &o.output, recordOutputs...)
	return c
}

func (o *historyOptions) key(env *environment, args []string) (config.Key, error) {
	if err := checkLimit(o.limit); err != nil {
		return config.Key{}, err
	}
	selected, err := selectObjects(env.withSide(), args, o.namespace)
	if err == nil {
		err = selected.withHistory()
	}
	if err != nil {
		return config.Key{}, err
	}
	if len(selected.keys) != 1 {
		return config.Key{}, errOneObject
	}
	return selected.keys[0], nil
}

var errOneObject = exit.With(exit.Usage, errors.New("name one object: KIND NAME or KIND/NAME; portolan audit shows the changes of several, of a namespace or of the store"))

func checkLimit(limit int) error {
	if limit < 0 {
		return exit.With(exit.Usage, fmt.Errorf("--limit %d: give a number from 1 on, or 0 for all", limit))
	}
	return nil
}

func (o *historyOptions) run(ctx context.Context, env *environment, key config.Key) error {
	var records []record.Record
	var more bool
	var from string
	err := env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		q := record.Query{Group: key.Kind.Group, Kind: key.Kind.Kind, Namespace: key.Namespace, Name: key.Name}
		records, more, err = recordFilter{limit: o.limit}.fetch(ctx, c, q)
		if err == nil && len(records) == 0 {
			from, err = foundElsewhere(ctx, c.Warning(env.warn), env.withSide().Schemas.Kind(key.Kind), key)
		}
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case from != "":
		return fmt.Errorf("%s: there is no history of it: the object comes from the source %s: its changes are made there, and not recorded here", key, from)
	case len(records) == 0:
		hint := ""
		if o.namespace == "" && key.Namespace != "" {
			hint = "; -n names another namespace"
		}
		return fmt.Errorf("%s: there is no history of it: it never was, or its records are past their retention%s", key, hint)
	}
	if o.output != "table" {
		return writeRecords(env, o.output, records)
	}
	return env.recordTable("CHANGE", records, more, func(r record.Record) string { return summary(r.Changes[0]) })
}
