package objects

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
)

// CompleteRevisions offers the revisions of the newest changes: of the object on the command
// line, else of the namespace, else of all.
func CompleteRevisions(line *cli.Environment) cobra.CompletionFunc {
	env := &environment{line}
	return func(c *cobra.Command, args []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		q := record.Query{Namespace: namespaceGiven(c), Limit: offeredRevisions, Bare: true}
		if len(args) > 0 {
			if s, err := selectObjects(env, args, q.Namespace); err == nil && len(s.keys) == 1 {
				key := s.keys[0]
				q.Group, q.Kind, q.Namespace, q.Name = key.Kind.Group, key.Kind.Kind, key.Namespace, key.Name
			}
		}
		env.Offer(c.Context(), func(ctx context.Context, c *client.Client) error {
			list, err := c.Records(ctx, q)
			if err != nil {
				return err
			}
			for _, r := range list.Items {
				about := fmt.Sprintf("%s ago: %s %s", cli.Age(env.Now(), r.Time), changesOf(r), cli.Plain(r.Message))
				out = append(out, cobra.CompletionWithDesc(r.Revision, strings.TrimSpace(about)))
			}
			return nil
		})
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// offeredRevisions is how many revisions a shell offers, newest first.
const offeredRevisions = 20
