package objects

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/xds/admin"
)

func newDescribeMeshCommand(env *environment) *cobra.Command {
	outputs := []string{"table", "json", "yaml"}
	var output string
	c := &cobra.Command{
		Use:   "mesh",
		Short: "Show the mesh configuration in effect, and what sets each field",
		Long: `Show the fields of the mesh configuration that are set on the server, and from where:

  object   the MeshConfig of the root namespace
  file     the file of --mesh-config of this server
  default  Istio's default

The object outranks the file, and the file the defaults. To change the mesh, apply a
MeshConfig: it holds for all servers at once.`,
		Example: `  portolan describe mesh
  portolan describe mesh -o yaml`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			var found admin.Mesh
			err := env.Call(c.Context(), func(ctx context.Context, c *client.Client) error { return c.JSON(ctx, admin.MeshPath, &found) })
			if err != nil {
				return err
			}
			if output != "table" {
				return cli.WriteDocument(env.Stdout, output, found)
			}
			rows := [][]string{{"FIELD", "FROM", "VALUE"}}
			for _, f := range found.Fields {
				rows = append(rows, []string{f.Name, f.From, string(f.Value)})
			}
			return cli.WriteTable(env.Stdout, rows)
		},
	}
	cli.RegisterOutput(c, &output, outputs...)
	return c
}
