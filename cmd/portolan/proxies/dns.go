package proxies

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/objects"
	"github.com/portolan-mesh/portolan/xds/explain"
)

func newDNSCommand(env *environment) *cobra.Command {
	c := &cobra.Command{Use: "dns", Short: "See what the names of the mesh stand for"}
	c.AddCommand(newDNSResolveCommand(env))
	return c
}

func newDNSResolveCommand(env *environment) *cobra.Command {
	var from, output string
	var files objects.Files
	c := &cobra.Command{
		Use:   "resolve HOST [--from WORKLOAD]",
		Short: "Show what the name server on a machine answers for a name, and why",
		Long: `Show what the name server of the agent on a machine answers for a name: which host of the
mesh it stands for, its addresses and where they are from, and the service. Where the
agent asks the resolvers of the machine instead, it says why. No question is sent: the
server builds what it sends the agent.

--from is a connected sidecar, by its name, namespace/name, address or node id, or a
WorkloadEntry, as namespace/name, or the address of an endpoint, for a sidecar as it
would be there. Without it -n is the namespace of a sidecar as it would be there.

With -f the answer is as if the objects of these files were applied.`,
		Example: `  portolan dns resolve reviews.shop --from shop/vm-12
  portolan dns resolve reviews -n shop
  portolan dns resolve www.example.com -n shop -f new.yaml`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cli.CompleteHosts(env.Environment),
		RunE: func(c *cobra.Command, args []string) error {
			query := url.Values{"host": {args[0]}}
			switch {
			case args[0] == "" || strings.ContainsAny(args[0], "/: "):
				return exit.With(exit.Usage, fmt.Errorf("%q is no name: give a host without a port, such as reviews.shop", args[0]))
			case from != "" && files.Namespace() != "":
				return exit.With(exit.Usage, errors.New("--from has its namespace, and -n is one: leave one of them out"))
			case from != "":
				query.Set("from", from)
			default:
				query.Set("namespace", cmp.Or(files.Namespace(), env.Namespace))
			}
			operations, err := files.Operations(c.Context(), env.Environment)
			if err != nil {
				return err
			}
			var r explain.Resolution
			err = env.AskTheServerOf(c.Context(), explain.ResolvePath, query, &r, operations...)
			switch {
			case err != nil:
				return err
			case output != "":
				return cli.WriteDocument(env.Stdout, output, r)
			}
			if r.Warning != "" {
				env.Warn([]string{r.Warning})
			}
			return cli.WriteTable(env.Stdout, resolutionRows(r))
		},
	}
	c.Flags().StringVar(&from, "from", "", "sidecar whose machine asks")
	files.Register(c)
	cli.RegisterOutput(c, &output, "", "json", "yaml")
	_ = c.RegisterFlagCompletionFunc("from", completeProxyFlag(env))
	return c
}

// sourceWords say in words where addresses are from.
var sourceWords = map[explain.AddressSource]string{
	explain.OwnAddresses: "its own", explain.AssignedAddresses: "given by Portolan, as it has none of its own", explain.EndpointAddresses: "those of its healthy endpoints",
}

func resolutionRows(r explain.Resolution) [][]string {
	who := fmt.Sprintf("any sidecar of namespace %s", r.Proxy.Namespace)
	if r.Proxy.Name != "any."+r.Proxy.Namespace {
		who = r.Proxy.Name + connection(r.Proxy)
	}
	rows := [][]string{{"asks", who}, {"name", cli.Plain(r.Name)}}
	if r.Host == "" {
		return append(rows, []string{"answer", "what the resolvers of the machine say"}, []string{"since", cli.Plain(r.Reason)})
	}
	rows = append(rows, []string{"host", cli.Plain(r.Host)}, []string{"service", fmt.Sprintf("namespace %s, of the registry %s", r.Namespace, r.Registry)})
	if len(r.Objects) > 0 {
		rows = append(rows, []string{"objects", cli.FormatList(r.Objects, true)})
	}
	for _, ip := range r.Addresses {
		kind := "A"
		if strings.Contains(ip, ":") {
			kind = "AAAA"
		}
		rows = append(rows, []string{kind, ip})
	}
	if r.AliasOf != "" {
		return append(rows, []string{"alias", "of " + r.AliasOf}, []string{"from", "addresses of " + r.AliasOf + " are " + sourceWords[r.From]})
	}
	return append(rows, []string{"from", "addresses are " + sourceWords[r.From]})
}
