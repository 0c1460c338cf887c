package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance/remote"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
)

func newCACommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "ca",
		Short: "Look after the certificate authority of the mesh",
		Long: `Look after the certificate authority of the mesh, which signs the certificates by which
workloads prove who they are. Its keys are a secret of the store, sealed as all are, and
made with the first certificate; serve --ca-cert uses the files of an operator instead.`,
	}
	c.AddCommand(newCAInitCommand(env), newCAStatusCommand(env), newCARootCommand(env), newCARotateCommand(env))
	return c
}

func newCAInitCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Make the root of the mesh now, and not with the first certificate",
		Long: `Make the root of the mesh now, and not with the first certificate, so that it can be
handed out before. If there is a root nothing changes. The server answers the user who
runs it alone, on its own machine.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				s, err := remote.Server{Client: api}.BeginAuthority(ctx)
				if err != nil {
					return err
				}
				return cli.WriteTable(env.Stdout, authorityRows(env, s))
			})
		},
	}
}

func newCAStatusCommand(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "status",
		Short: "See what signs certificates, which roots are trusted, and how far a rotation is",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				s, err := remote.Server{Client: api}.AuthorityStatus(ctx)
				if err != nil {
					return err
				}
				if output != "" {
					return cli.WriteDocument(env.Stdout, output, s)
				}
				return cli.WriteTable(env.Stdout, authorityRows(env, s))
			})
		},
	}
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	return c
}

// authorityRows formats a status as a table of two columns.
func authorityRows(env *environment, s *authority.Status) [][]string {
	rows := [][]string{{"trust domain", s.TrustDomain}, {"keys", cli.Plain(s.Source)}}
	if s.Signs.Serial == "" && s.Problem == "" {
		rows = append(rows, []string{"signs", "none yet: the first certificate makes a root, or portolan ca init"})
	}
	row := func(what string, c authority.PublicCertificate) {
		rows = append(rows, []string{what, fmt.Sprintf("%s, sha256 %s, ends %s", cli.Plain(c.Subject), c.Fingerprint, c.NotAfter.UTC().Format(time.DateOnly))})
	}
	if s.Signs.Serial != "" {
		row("signs", s.Signs)
	}
	for _, root := range s.Roots {
		what := "root"
		if s.Rotation != nil && root.Fingerprint == s.Rotation.Former {
			what = "former root"
		}
		row(what, root)
	}
	if s.Rotation != nil {
		text := fmt.Sprintf("since %s; may finish from %s on", s.Rotation.Started.UTC().Format(time.RFC3339), s.Rotation.MayFinish.UTC().Format(time.RFC3339))
		if !env.Now().Before(s.Rotation.MayFinish) {
			text = fmt.Sprintf("since %s; finish it: portolan ca rotate finish", s.Rotation.Started.UTC().Format(time.RFC3339))
		}
		rows = append(rows, []string{"rotation", text})
	}
	if s.Problem != "" {
		rows = append(rows, []string{"problem", cli.Plain(s.Problem)})
	}
	return rows
}

func newCARootCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:     "root",
		Short:   "Print the roots that everybody in the mesh trusts, in PEM",
		Example: `  portolan ca root > roots.pem`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
				s, err := remote.Server{Client: api}.AuthorityStatus(ctx)
				if err != nil {
					return err
				}
				if s.Bundle == "" {
					if s.Problem != "" {
						return errors.New(s.Problem)
					}
					return errors.New("there is no root yet: the first certificate makes one, or portolan ca init")
				}
				_, err = fmt.Fprint(env.Stdout, s.Bundle)
				return err
			})
		},
	}
}

func newCARotateCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the root of the mesh",
		Long: `Replace the root of the mesh, in two steps. While a rotation is under way the new root
signs, both are trusted, and who trusts either accepts all certificates: it may stay so
for as long as one likes. The server answers the user who runs it alone, on its own
machine.`,
		Example: `  portolan ca rotate start
  portolan ca status
  portolan ca rotate finish`,
	}
	step := func(name, short, done string) *cobra.Command {
		force := false
		step := &cobra.Command{
			Use: name, Short: short, Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				return env.Call(c.Context(), func(ctx context.Context, api *client.Client) error {
					s, err := remote.Server{Client: api}.RotateAuthority(ctx, name, force)
					if err != nil {
						return err
					}
					fmt.Fprintln(env.Stdout, done)
					return cli.WriteTable(env.Stdout, authorityRows(env, s))
				})
			},
		}
		if name == authority.RotateFinish {
			step.Flags().BoolVar(&force, "force", false, "drop the former root although certificates that it has signed may be valid: their holders are refused everywhere, until they prove who they are anew")
		}
		return step
	}
	c.AddCommand(
		step(authority.RotateStart, "Make a new root, which signs from now on beside the former one that stays trusted", "a new root signs; both are trusted"),
		step(authority.RotateFinish, "Drop the former root, once nothing that it has signed can be valid", "the former root is trusted no more"),
		step(authority.RotateAbort, "Go back to the former root, and drop the new one", "the former root signs again, and it alone is trusted"),
	)
	return c
}
