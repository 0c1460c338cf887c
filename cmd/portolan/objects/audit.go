package objects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/admin"
)

type auditOptions struct {
	namespace string
	all       bool
	user      string
	since     time.Duration
	limit     int
	output    string
	refused   bool
}

func newAuditCommand(env *environment) *cobra.Command {
	var o auditOptions
	c := &cobra.Command{
		Use:   "audit [KIND | KIND NAME | KIND/NAME]",
		Short: "Show who changed what in the store",
		Long: `Show the changes of the store, newest first and a line for each: what was done at
once is one. A kind, an object or a namespace shows those that concern it.

Certificates that were issued are among them, and attempts that were refused for who
made them; --refused shows these alone. Many of them from one source are one line, with
their number.

WHO, by which --by chooses, is the user who has proved it, or "local" on the machine
of the server; FROM is what the client said of itself, and its address where it was
another machine.`,
		Example: `  portolan audit --since 1h
  portolan audit -n shop --limit 0
  portolan audit --refused --since 24h
  portolan audit vs/reviews -n shop -o json`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeObjects(env),
		RunE: func(c *cobra.Command, args []string) error {
			query, err := o.query(env, args)
			if err != nil {
				return err
			}
			return o.run(c.Context(), env, query)
		},
	}
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "only changes in this namespace; objects that you name are in $PORTOLAN_NAMESPACE, else \"default\", without it")
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "changes in all namespaces, as without -n")
	f.StringVar(&o.user, "by", "", "only changes of this user")
	f.DurationVar(&o.since, "since", 0, "only changes of so long ago and later, such as 90m or 24h")
	f.BoolVar(&o.refused, "refused", false, "only attempts that were refused")
	f.IntVar(&o.limit, "limit", 50, "how many changes to show, the newest; 0 is all")
	cli.RegisterOutput(c, &o.output, recordOutputs...)
	return c
}

func (o *auditOptions) query(env *environment, args []string) (record.Query, error) {
	if err := checkLimit(o.limit); err != nil {
		return record.Query{}, err
	}
	if o.since < 0 {
		return record.Query{}, exit.With(exit.Usage, fmt.Errorf("--since %s: give how long ago, such as 90m or 24h", o.since))
	}
	if err := cli.OneScope(o.all, o.namespace != ""); err != nil {
		return record.Query{}, err
	}
	q := record.Query{Namespace: o.namespace, Bare: o.output == "table"}
	if len(args) == 0 {
		return q, nil
	}
	if o.refused {
		return q, exit.With(exit.Usage, errors.New("--refused is about no object: leave "+strings.Join(args, " ")+" out"))
	}
	selected, err := selectObjects(env.withSide(), args, o.namespace)
	if err == nil {
		err = selected.withHistory()
	}
	if err != nil {
		return q, err
	}
	if len(selected.kinds) > 1 || len(selected.keys) > 1 {
		return q, exit.With(exit.Usage, fmt.Errorf("%s: name one kind or one object", strings.Join(args, " ")))
	}
	if o.all && len(selected.keys) > 0 {
		return q, exit.With(exit.Usage, errors.New("an object is in one namespace: name it with -n instead of -A"))
	}
	q.Group, q.Kind = selected.kinds[0].Group, selected.kinds[0].Kind
	if len(selected.keys) == 1 {
		q.Namespace, q.Name = selected.keys[0].Namespace, selected.keys[0].Name
	}
	return q, nil
}

func (o *auditOptions) run(ctx context.Context, env *environment, q record.Query) error {
	want := recordFilter{limit: o.limit, by: o.user, refused: o.refused}
	if o.since > 0 {
		want.since = env.Now().Add(-o.since)
	}
	var records []record.Record
	var more bool
	err := env.Call(ctx, func(ctx context.Context, c *client.Client) (err error) {
		records, more, err = want.fetch(ctx, c, q)
		return err
	})
	if err != nil {
		return err
	}
	if o.output != "table" {
		return writeRecords(env, o.output, records)
	}
	if len(records) == 0 {
		fmt.Fprintln(env.Stderr, "No such changes.")
		return nil
	}
	return env.recordTable("CHANGES", records, more, changesOf)
}

// changesOf says what a change did to its object, or to how many objects it did what.
func changesOf(r record.Record) string {
	if wasRefused(r) {
		return "refused"
	}
	if len(r.Changes) == 1 {
		c := r.Changes[0]
		key := config.Key{Kind: config.GroupVersionKind{Kind: c.Kind}, Namespace: c.Namespace, Name: c.Name}
		if c.Kind == admin.DisconnectKind {
			key.Kind.Kind = "Proxy"
			return cli.Plain(key.String()) + " disconnected"
		}
		return cli.Plain(key.String()) + " " + c.Outcome
	}
	counts := map[string]int{}
	for _, c := range r.Changes {
		counts[c.Outcome]++
	}
	return objectCounts(counts)
}

// objectCounts formats counts by outcome, as "2 objects created" or "3 objects: 2 created, 1
// deleted".
func objectCounts(counts map[string]int) string {
	all := 0
	var parts []string
	for _, outcome := range []string{"created", "configured", "deleted"} {
		if n := counts[outcome]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, outcome))
			all += n
		}
	}
	if len(parts) == 1 {
		_, outcome, _ := strings.Cut(parts[0], " ")
		if all == 1 {
			return "1 object " + outcome
		}
		return fmt.Sprintf("%d objects %s", all, outcome)
	}
	return fmt.Sprintf("%d objects: %s", all, strings.Join(parts, ", "))
}
