package proxies

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// nodeHelp is the help text of commands about one proxy.
const nodeHelp = `

NODE is the name of a connected proxy, namespace/name, its address, its node id, or
a part of that which no other proxy has. The proxy may be connected to any server of
the store; a server on another machine is named, with the command to run there.`

// proxyFilter limits, by flags, the resources of one type that are shown.
type proxyFilter interface {
	register(*cobra.Command)
	check() error
	// apply drops the resources that the flags exclude.
	apply(*admin.ProxyConfig) error
}

func newProxyConfigCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "config",
		Aliases: []string{"pc"}, SuggestFor: []string{"proxy-config", "pc"},
		Short: "Show the configuration that a proxy took, and the objects behind it",
	}
	clusters, listeners, routes, endpoints := &clusterFilter{}, &listenerFilter{}, &routeFilter{}, &endpointFilter{}
	c.AddCommand(
		newProxyConfigTypeCommand(env, proxyView{
			use: "cluster", aliases: []string{"clusters", "c"}, what: "clusters", types: []string{"CDS"}, filter: clusters,
			tables: []proxyTable{clusterRows}, example: "--fqdn reviews.shop.example --port 9080",
		}),
		newProxyConfigTypeCommand(env, proxyView{
			use: "listener", aliases: []string{"listeners", "l"}, what: "listeners", types: []string{"LDS"}, filter: listeners,
			tables: []proxyTable{listenerRows}, example: "--port 9080",
		}),
		newProxyConfigTypeCommand(env, proxyView{
			use: "route", aliases: []string{"routes", "r"}, what: "routes", types: []string{"RDS", "VHDS"}, filter: routes,
			tables: []proxyTable{routeRows}, example: "--name 9080",
		}),
		newProxyConfigTypeCommand(env, proxyView{
			use: "endpoint", aliases: []string{"endpoints", "ep"}, what: "endpoints", types: []string{"CDS", "EDS"}, filter: endpoints,
			tables: []proxyTable{endpoints.rows}, example: "--status unhealthy",
		}),
		newProxyConfigTypeCommand(env, proxyView{
			use: "secret", aliases: []string{"secrets", "s"}, what: "secrets", types: []string{"SDS"},
			tables: []proxyTable{env.secretTable}, example: "--dump dump.json", dump: true, more: secretHelp,
		}),
		newProxyConfigTypeCommand(env, proxyView{
			use: "extension", aliases: []string{"extensions", "ecds"}, what: "filters that come by themselves", types: []string{"ECDS"},
			tables: []proxyTable{extensionRows}, example: "-o json",
		}),
		newProxyConfigTypeCommand(env, proxyView{
			use: "all", aliases: []string{"a"}, what: "configuration of all types", example: "-o json",
			tables: []proxyTable{clusterRows, listenerRows, routeRows, (&endpointFilter{}).rows},
		}),
	)
	return c
}

// proxyTable returns the rows of a table, the header first.
type proxyTable func(*admin.ProxyConfig) ([][]string, error)

// proxyView describes a command that shows one part of a proxy's configuration.
type proxyView struct {
	use, what, example string
	aliases            []string
	types              []string // the resource types to request; nil means all
	filter             proxyFilter
	tables             []proxyTable
	more               string // ends the help text
	dump               bool   // whether --dump takes the content from the Envoy's own dump
}

// proxyViewFlags are the flags of all such commands.
type proxyViewFlags struct {
	output, dump string
	dumped       bool // whether dump is given
	patches      bool
	where        proxyScope
}

func newProxyConfigTypeCommand(env *environment, view proxyView) *cobra.Command {
	var flags proxyViewFlags
	c := &cobra.Command{
		Use: view.use + " NODE", Aliases: view.aliases,
		Short: "Show the " + view.what + " of a proxy, and the objects behind them",
		Long: "Show the " + view.what + ` of a connected proxy, as it acknowledged them, and the
objects from which they were made. Where it should have something else,
portolan proxy diff shows what. -o json and -o yaml show the messages of Envoy's API,
but those of secrets: of these there are the certificates, and never a key.` + view.more + nodeHelp,
		Example: "  portolan proxy config " + view.use + " vm-12\n  portolan proxy config " + view.use + " vm-12 " + view.example,
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeProxies(env),
		RunE: func(c *cobra.Command, args []string) error {
			flags.dumped = c.Flags().Changed("dump")
			config, err := env.viewedConfig(c.Context(), args[0], view, flags)
			if err != nil {
				return err
			}
			if flags.output != "short" {
				return cli.WriteDocument(env.Stdout, flags.output, config)
			}
			if flags.patches {
				return env.printProxyConfig(config, []proxyTable{patchRows})
			}
			return env.printProxyConfig(config, view.tables)
		},
	}
	c.Flags().BoolVar(&flags.patches, "show-patches", false, "show instead which EnvoyFilters patched what, and which patches failed")
	cli.RegisterOutput(c, &flags.output, "short", "json", "yaml")
	flags.where.register(c)
	if view.dump {
		registerDump(c, &flags.dump)
	}
	if view.filter != nil {
		view.filter.register(c)
	}
	return c
}

// viewedConfig returns what a view shows of a proxy's configuration.
func (e *environment) viewedConfig(ctx context.Context, node string, view proxyView, flags proxyViewFlags) (*admin.ProxyConfig, error) {
	if view.filter != nil {
		if err := view.filter.check(); err != nil {
			return nil, err
		}
	}
	if err := flags.where.check(); err != nil {
		return nil, err
	}
	config, err := e.dumpedConfig(ctx, node, view.types, flags)
	if err != nil {
		return nil, err
	}
	e.tellNotSynced(config)
	if view.filter != nil {
		err = view.filter.apply(config)
	}
	return config, err
}

// dumpedConfig reads the configuration of a proxy. If there is a dump of the Envoy, the secrets are
// as that has them.
func (e *environment) dumpedConfig(ctx context.Context, node string, types []string, flags proxyViewFlags) (*admin.ProxyConfig, error) {
	query := url.Values{"type": types}
	if !flags.dumped {
		return e.proxyConfig(ctx, node, flags.where.namespace, query)
	}
	dump, err := e.readDump(flags.dump)
	if err != nil {
		return nil, err
	}
	config, err := e.proxyConfig(ctx, node, flags.where.namespace, query)
	if err != nil {
		return nil, err
	}
	if err := checkDump(dump, flags.dump, config.Proxy); err != nil {
		return nil, err
	}
	config.TakeSecrets(dump)
	return config, nil
}

// proxyConfig reads the configuration of a proxy, from the server that has it. A namespace that
// is not empty limits the search to the proxies in it.
func (e *environment) proxyConfig(ctx context.Context, node, namespace string, query url.Values) (*admin.ProxyConfig, error) {
	query.Set("node", node)
	if namespace != "" {
		query.Set("namespace", namespace)
	}
	out := &admin.ProxyConfig{}
	return out, hintNamespace(e.AskTheServerOf(ctx, admin.ProxyConfigPath, query, out), namespace)
}

func (e *environment) printProxyConfig(config *admin.ProxyConfig, tables []proxyTable) error {
	if config.Proxy.Type == string(discovery.ConfigClient) {
		tables = []proxyTable{takenObjectRows}
	}
	for i, table := range tables {
		rows, err := table(config)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(e.Stdout)
		}
		if err := cli.WriteTable(e.Stdout, rows); err != nil {
			return err
		}
	}
	return nil
}

// patchRows lists the patches of EnvoyFilters that match the resources of a proxy.
func patchRows(config *admin.ProxyConfig) ([][]string, error) {
	rows := [][]string{{"TYPE", "NAME", "ENVOYFILTER", "PATCH", "RESULT"}}
	for _, t := range config.Types {
		for _, r := range t.Resources {
			for _, p := range r.Patches {
				result := "applied"
				switch {
				case p.Error != "":
					result = "! failed: " + p.Error
				case p.Rejected:
					result = "! rejected, the proxy keeps what it had: " + cli.Quoted(r.Message)
				}
				rows = append(rows, []string{t.Name, r.Name, p.EnvoyFilter, strings.TrimPrefix(p.Field, "spec."), result})
			}
		}
	}
	return rows, nil
}

// tellNotSynced prints how many resources differ from what the proxy should have, if any.
func (e *environment) tellNotSynced(config *admin.ProxyConfig) {
	n := 0
	for _, t := range config.Types {
		for _, r := range t.Resources {
			if r.State != protocol.Synced && r.State != "" { // without a state it does not come from the server
				n++
			}
		}
	}
	if n > 0 {
		fmt.Fprintf(e.Stderr, "%s should have %s otherwise: see portolan proxy diff %s\n", config.Proxy.Name, resourceCount(n), config.Proxy.Node)
	}
}

func resourceCount(n int) string {
	if n == 1 {
		return "1 resource"
	}
	return fmt.Sprintf("%d resources", n)
}

// typeOf returns the resources of a type, nil if the type was not requested.
func typeOf(config *admin.ProxyConfig, name string) *admin.ProxyType {
	i := slices.IndexFunc(config.Types, func(t admin.ProxyType) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &config.Types[i]
}

// eachOf calls visit with each message of a type that the proxy has, decoded as M.
func eachOf[M any](config *admin.ProxyConfig, typeName string, visit func(*admin.ProxyResource, M)) error {
	t := typeOf(config, typeName)
	if t == nil {
		return nil
	}
	for i := range t.Resources {
		r := &t.Resources[i]
		message, err := r.Has()
		if err != nil {
			return fmt.Errorf("%s %s: %w", t.Name, r.Name, err)
		}
		if m, ok := message.(M); ok {
			visit(r, m)
		}
	}
	return nil
}

// keepResources drops the resources of a type that are not wanted, and those that the proxy does
// not have.
func keepResources[M any](config *admin.ProxyConfig, typeName string, wanted func(M) bool) error {
	kept := []admin.ProxyResource{}
	err := eachOf(config, typeName, func(r *admin.ProxyResource, m M) {
		if wanted(m) {
			kept = append(kept, *r)
		}
	})
	if t := typeOf(config, typeName); t != nil && err == nil {
		t.Resources = kept
	}
	return err
}
