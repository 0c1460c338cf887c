package proxies

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/objects"
	"github.com/portolan-mesh/portolan/xds/explain"
)

func newAuthzCommand(env *environment) *cobra.Command {
	c := &cobra.Command{Use: "authz", Short: "Find out who may call whom"}
	c.AddCommand(newAuthzCheckCommand(env))
	return c
}

// checkOptions are the flags of authz check.
type checkOptions struct {
	to, from, path, method, ip, claims string
	port                               uint16
	headers                            []string
	files                              objects.Files
	output                             string
}

func newAuthzCheckCommand(env *environment) *cobra.Command {
	var o checkOptions
	c := &cobra.Command{
		Use:   "check --to WORKLOAD|HOST[:PORT] [--from IDENTITY|NODE]",
		Short: "Show whether policies allow a request, and which of them decides",
		Long: `Show whether the AuthorizationPolicies and RequestAuthentications of a destination allow a
request: by which policy and rule, or that no policy is for it, or that there are ALLOW
policies and none of their rules matches; and which policies of a dry run would say
otherwise. No request is sent: the server builds what it sends the destination's proxies,
and simulates Envoys that have it. explain request shows the whole way of a request.

--to is a host of the mesh, whose endpoints are asked one by one; or one sidecar or gateway,
by its name, namespace/name, address or node id, or as gateway/NAMESPACE/NAME; or a
WorkloadEntry, as namespace/name, for a sidecar that captures its traffic. The port is that
which clients of the host call, or the workload's own. A gateway needs the port of its
server, unless there is only one, and --header host=NAME.

--from is an identity, such as cluster.local/ns/shop/sa/web, whose owner proves it wherever
the destination takes mutual TLS; or a proxy or gRPC program, which encrypts as its
DestinationRules and the labels of the endpoints say, and calls from its own address.
Without --from, the caller calls in plaintext and is nobody. --ip is the caller's address.

--claims is a file with the claims of a token, as JSON: as if its issuer had signed them.
A whole token is a --header.

With -f the answer is as if the objects of these files were applied. The exit code is 1
where the request is refused, by all endpoints or by some, or where that is not known: a
policy asks for an identity, and the proxy names no service account (bootstrap
--service-account).`,
		Example: `  portolan authz check --to reviews.shop:9080 --from cluster.local/ns/shop/sa/web --path /api/1
  portolan authz check --to shop/vm-12 --port 8080 --from shop/vm-3 --method POST
  portolan authz check --to reviews.shop:9080 --from shop/vm-3 -f deny.yaml
  portolan authz check --to gateway/shop/edge:80 --header host=www.example.com --claims anna.json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context(), env) },
	}
	f := c.Flags()
	f.StringVar(&o.to, "to", "", "destination: a host of the mesh, a workload or a gateway, with or without :PORT")
	f.StringVar(&o.from, "from", "", "caller: an identity, a proxy or a workload (default nobody)")
	f.Uint16Var(&o.port, "port", 0, "port of the destination, if --to has none (default the only one)")
	f.StringVar(&o.ip, "ip", "", "address of the caller (default that of the proxy, else 192.0.2.1)")
	f.StringVar(&o.path, "path", "", `path of the request, with its query (default "/")`)
	f.StringVar(&o.method, "method", "", `method of the request (default "GET")`)
	f.StringArrayVar(&o.headers, "header", nil, "header of the request, NAME=VALUE; can be repeated")
	f.StringVar(&o.claims, "claims", "", "file with the claims of a token, as JSON, or - for stdin")
	o.files.Register(c)
	cli.RegisterOutput(c, &o.output, "table", "json", "yaml")
	_ = c.RegisterFlagCompletionFunc("from", completeProxies(env))
	_ = c.RegisterFlagCompletionFunc("to", completeProxies(env))
	_ = c.MarkFlagFilename("claims", "json")
	return c
}

func (o *checkOptions) run(ctx context.Context, env *environment) error {
	if o.to == "" {
		return exit.With(exit.Usage, errors.New("say to where: --to WORKLOAD or --to HOST:PORT"))
	}
	query := url.Values{"to": {o.to}, "header": o.headers}
	for name, value := range map[string]string{"from": o.from, "ip": o.ip, "path": o.path, "method": o.method} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if o.port != 0 {
		query.Set("port", fmt.Sprint(o.port))
	}
	if o.claims != "" {
		claims, err := o.readClaims(env)
		if err != nil {
			return exit.With(exit.Data, err)
		}
		query.Set("claims", claims)
	}
	operations, err := o.files.Operations(ctx, env.Environment)
	if err != nil {
		return err
	}
	var check explain.AccessCheck
	if err := env.AskTheServerOf(ctx, explain.CheckPath, query, &check, operations...); err != nil {
		return err
	}
	if o.output != "table" {
		err = cli.WriteDocument(env.Stdout, o.output, check)
	} else {
		err = cli.WriteTable(env.Stdout, checkRows(check))
	}
	if err == nil && check.Outcome != explain.Forwarded {
		err = exit.Quietly(exit.Failure, "the request is refused")
	}
	return err
}

func (o *checkOptions) readClaims(env *environment) (string, error) {
	if o.claims == "-" {
		text, err := cli.ReadAll(env.Stdin)
		return string(text), err
	}
	text, err := cli.ReadFile(o.claims)
	return string(text), err
}

// checkRows returns a check with one fact in each row. It marks refusals.
func checkRows(c explain.AccessCheck) [][]string {
	caller := "nobody, in plaintext"
	switch {
	case c.Caller.Node != "":
		caller = joinNonEmpty(cli.NodeName(c.Caller.Node), c.Caller.Identity)
	case c.Caller.Identity != "":
		caller = c.Caller.Identity
	}
	rows := [][]string{
		{"from", caller + "  at " + c.Caller.Address},
		{"request", joinNonEmpty(c.Request.Protocol, c.Request.Method, c.Request.Path, fmt.Sprintf("for %s, port %d", c.Request.Host, c.Request.Port))},
	}
	for _, d := range c.Destinations {
		text := d.Reason
		if d.Access == nil && d.Outcome != explain.Passed {
			text = "! " + text
		}
		if d.Access != nil {
			text = ""
		}
		rows = append(rows, []string{"at", joinNonEmpty(cli.FormatList(d.Endpoints, false), "of "+strings.Join(cli.MapSlice(d.Proxies, cli.NodeName), ", "), text)})
		rows = append(rows, accessRows(d.Access)...)
	}
	if len(c.Unguarded) > 0 {
		rows = append(rows, []string{"at", cli.FormatList(c.Unguarded, false) + "  no sidecar is connected: no policy judges it"})
	}
	outcome := map[string]string{
		explain.Forwarded: "allowed", explain.Fails: "! refused", explain.PartlyFails: "! refused by some endpoints", explain.Unknown: "! not known",
	}[c.Outcome]
	if providers := providersOf(cli.MapSlice(c.Destinations, func(d explain.Inbound) *explain.Access { return d.Access })); c.Outcome == explain.Forwarded && len(providers) > 0 {
		outcome = "asks " + strings.Join(providers, ", ") + ", who decides"
	}
	return append(rows, []string{"outcome", outcome})
}

// providersOf returns the authorizers that are asked, in order.
func providersOf(all []*explain.Access) []string {
	var out []string
	for _, a := range all {
		if a != nil && a.Provider != "" {
			out = append(out, a.Provider)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// shownMisses bounds how many rules that do not match a table shows.
const shownMisses = 8

// accessRows describes what policies say; nothing if the request does not come to them.
func accessRows(a *explain.Access) [][]string {
	if a == nil {
		return nil
	}
	text := map[string]string{explain.Allowed: "allowed: ", explain.Refused: "! refused: ", explain.Asked: "asked: ", explain.Unknown: "! not known: "}[a.Decision] + a.Reason
	if a.By != nil {
		text += " (" + a.By.Action + ")"
	}
	rows := [][]string{{"policies", text}}
	for _, by := range a.Weakened {
		rows = append(rows, []string{"weakened", "! by " + by})
	}
	for i, miss := range a.Misses {
		if i == shownMisses {
			rows = append(rows, []string{"no match", fmt.Sprintf("%d more: -o json has them", len(a.Misses)-i)})
			break
		}
		rows = append(rows, []string{"no match", miss.String()})
	}
	if a.Unproved != "" {
		rows = append(rows, []string{"identity", "! not proved: " + a.Unproved})
	}
	if a.Audited != nil {
		rows = append(rows, []string{"audited", "by " + a.Audited.String()})
	}
	if a.Details != "" {
		rows = append(rows, []string{"logged", a.Details})
	}
	for _, d := range a.DryRuns {
		word := map[string]string{explain.Allowed: "would allow it", explain.Refused: "! would refuse it", explain.Unknown: "! not known, as the identity of the caller is not"}[d.Decision]
		switch {
		case d.By != nil:
			word += ": " + d.By.String()
		default:
			word += ": no rule of " + strings.Join(d.Unmatched, ", ") + " matches"
		}
		rows = append(rows, []string{"dry run", word})
	}
	return rows
}
