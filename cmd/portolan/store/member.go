package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance/remote"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
	"github.com/portolan-mesh/portolan/discovery/identity/join"
)

func newStoreMemberCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "member",
		Short: "See and change the members of a store of several",
		Long: `See and change the members of the store that servers form by themselves
(portolan serve --store-peer-url). Any of the servers can be asked, on its machine
and as the user who runs it.

To replace a member whose data is lost: remove it, add it, start its server on an
empty directory with the command that add prints, and promote it.`,
	}
	c.AddCommand(newMemberListCommand(env), newMemberInviteCommand(env), newMemberAddCommand(env), newMemberPromoteCommand(env), newMemberRemoveCommand(env))
	return c
}

func newMemberListCommand(env *environment) *cobra.Command {
	outputs := []string{"table", "json"}
	var output string
	c := &cobra.Command{
		Use:   "list",
		Short: "Show the members, and how each is",
		Long: `Show the members of the store, and how each is:

  leader       it votes, and orders all changes
  voter        it votes
  learner      it has no vote, and catches up: see LAG, then promote it
  waiting      it answers, and knows no leader: there is no quorum
  unstarted    it was added and has not started yet
  unreachable  it does not answer; why is below the table

INDEX is the newest entry of the log that a member has, LAG how many it lacks.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := remote.Server{Client: c}.StoreMembers(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return cli.WriteDocument(env.Stdout, "json", list)
				}
				return env.printMembers(list.Items)
			})
		},
	}
	cli.RegisterOutput(c, &output, outputs...)
	return c
}

func (e *environment) printMembers(members []maintenance.Member) error {
	rows := [][]string{{"NAME", "ID", "STATUS", "PEER URLS", "CLIENT URLS", "DB SIZE", "INDEX", "LAG"}}
	var reasons [][]string
	for _, m := range members {
		row := []string{m.Name, m.ID, string(m.Status), strings.Join(m.PeerURLs, ","), strings.Join(m.ClientURLs, ","), "", "", ""}
		if m.Version != "" {
			row[5], row[6], row[7] = fmt.Sprintf("%.1f MiB", float64(m.DBBytes)/(1<<20)), strconv.FormatUint(m.Index, 10), strconv.FormatUint(m.Lag, 10)
		}
		rows = append(rows, row)
		if m.Error != "" {
			name := m.Name
			if name == "" {
				name = m.ID
			}
			reasons = append(reasons, []string{"  " + name, string(m.Status), m.Error})
		}
	}
	return errors.Join(cli.WriteTable(e.Stdout, rows), cli.WriteTable(e.Stdout, reasons))
}

func newMemberInviteCommand(env *environment) *cobra.Command {
	var in maintenance.Invitation
	ttl := time.Duration(0)
	c := &cobra.Command{
		Use:   "invite NAME --peer-url URL",
		Short: "Make a token by which a server joins the store, and print it this once",
		Long: `Make a token by which a server joins the store, and print it this once. It is good for
one machine, which becomes a member of the given name and URLs:

  portolan serve --join https://FIRST-SERVER:15080 --token-file FILE

The machine gets the certificate of the member and the keys of all secrets, so whoever
has the token can get all that the store has, until it is used. Only administrators of
the whole mesh make one. portolan token revoke takes it back.`,
		Example: `  portolan store member invite cp-2 --peer-url https://10.0.0.2:2380 > cp-2.token`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case in.PeerURL == "":
				return exit.With(exit.Usage, errors.New("--peer-url is missing: it is the address at which the others reach the new member, such as https://10.0.0.3:2380"))
			case ttl <= 0:
				return exit.With(exit.Usage, fmt.Errorf("--ttl %s: give a time such as 1h", ttl))
			}
			in.Name, in.TTL = args[0], ttl.String()
			return env.Call(c.Context(), func(ctx context.Context, c *client.Client) error {
				made, err := remote.Server{Client: c}.InviteStoreMember(ctx, in)
				if err != nil {
					return err
				}
				fmt.Fprintf(env.Stderr, "%s may join as %s, until %s, by this token. It is not shown again. On its machine:\n\n  portolan serve --join URL --token-file FILE\n\nwhere URL is that of the config API of a server of this store, such as https://10.0.0.1:15080.\n",
					made.Name, made.PeerURL, made.Expires.Format(time.RFC3339))
				if made.Roots == "" {
					fmt.Fprintln(env.Stderr, "The certificate of this server is of files: name its authority there with --ca, unless the system trusts it.")
				}
				_, err = fmt.Fprintln(env.Stdout, invitation.Pinned(made.Token, made.Roots))
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&in.PeerURL, "peer-url", "", "where the other members will reach it")
	f.StringVar(&in.ClientURL, "client-url", "", "where the other servers will reach it; the host of --peer-url with port "+serve.DefaultClientPort+" unless given")
	f.DurationVar(&ttl, "ttl", join.DefaultTTL, "for how long the token can be used, 24h at most")
	f.StringSliceVar(&in.Sources, "cidr", nil, "range of addresses from which it can be used, such as 10.0.0.0/8; may be repeated (default all)")
	return c
}

func newMemberAddCommand(env *environment) *cobra.Command {
	var peerURL string
	c := &cobra.Command{
		Use:   "add NAME --peer-url URL",
		Short: "Make a place for a new member with a certificate of yours, and print how to start it",
		Long: `Make a place for a new member in the store, where the certificates of its members are of
an authority of yours; else invite one. It begins as a learner, which has no
vote, so that a member that never comes costs nothing; there is one learner at a
time. The command to start it with is printed.`,
		Example: `  portolan store member add cp-3 --peer-url https://10.0.0.3:2380`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if peerURL == "" {
				return exit.With(exit.Usage, errors.New("--peer-url is missing: it is the address at which the others reach the new member, such as https://10.0.0.3:2380"))
			}
			return env.Call(c.Context(), func(ctx context.Context, c *client.Client) error {
				change, err := remote.Server{Client: c}.AddStoreMember(ctx, args[0], peerURL)
				if err != nil {
					return err
				}
				env.warnOf(change)
				_, err = fmt.Fprint(env.Stdout, howToStart(args[0], change))
				return err
			})
		},
	}
	c.Flags().StringVar(&peerURL, "peer-url", "", "where the other members will reach it")
	return c
}

func howToStart(name string, change *maintenance.MemberChange) string {
	peerURL := change.Member.PeerURLs[0]
	command := fmt.Sprintf("portolan serve --store-name %s --store-peer-url %s \\\n    --store-join %s", name, peerURL, strings.Join(change.Join, ","))
	if strings.HasPrefix(peerURL, "https:") {
		command += " \\\n    --store-cert FILE --store-key FILE --store-ca FILE"
	}
	return fmt.Sprintf(`%s was added as a learner, with the id %s. Start it on its machine, with an empty
data directory:

  %s

and then give it a vote:

  portolan store member promote %s
`, name, change.Member.ID, command, name)
}

func newMemberPromoteCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "promote NAME",
		Short: "Give a member that has caught up a vote",
		Long: `Give a learner a vote, as soon as it has caught up; the command waits for that for
up to 20 seconds, and says how far it is if that was not enough.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return env.change(c.Context(), "is a voter", func(ctx context.Context, c *client.Client) (*maintenance.MemberChange, error) {
				return remote.Server{Client: c}.PromoteStoreMember(ctx, args[0])
			})
		},
	}
}

func newMemberRemoveCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a member out of the store for good",
		Long: `Take a member out of the store, for good: its data directory is of no more use. What
would leave too few voters for a quorum is refused. A member that has never
started goes by its id or its peer URL.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return env.change(c.Context(), "was removed", func(ctx context.Context, c *client.Client) (*maintenance.MemberChange, error) {
				return remote.Server{Client: c}.RemoveStoreMember(ctx, args[0])
			})
		},
	}
}

// change changes a member and prints that.
func (e *environment) change(ctx context.Context, done string, do func(context.Context, *client.Client) (*maintenance.MemberChange, error)) error {
	return e.Call(ctx, func(ctx context.Context, c *client.Client) error {
		change, err := do(ctx, c)
		if err != nil {
			return err
		}
		e.warnOf(change)
		name := change.Member.Name
		if name == "" {
			name = change.Member.ID
		}
		_, err = fmt.Fprintf(e.Stdout, "%s %s\n", name, done)
		return err
	})
}

func (e *environment) warnOf(change *maintenance.MemberChange) {
	e.Warn(change.Warnings)
}
