package objects

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
)

func newAPIResourcesCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "api-resources",
		Short: "List the kinds of objects, and the names that commands take for them",
		Long: `List the kinds of objects. Commands take a kind by its name, singular or plural,
or by its short name. APIVERSION is the preferred one; the older ones of Istio
are read too. HISTORY is false for the kinds that are kept beside the mesh: no
history and no export has them.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			rows := [][]string{{"NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND", "HISTORY"}}
			for _, k := range env.withSide().Schemas.All() {
				rows = append(rows, []string{
					k.Plural, strings.Join(k.ShortNames, ","), k.APIVersion(), strconv.FormatBool(!k.ClusterScoped), k.Kind,
					strconv.FormatBool(!cli.BesideMesh(k.GroupVersionKind)),
				})
			}
			return cli.WriteTable(env.Stdout, rows)
		},
	}
}
