package proxies

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/objects"
	"github.com/portolan-mesh/portolan/xds/explain"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

func newExplainCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "explain",
		Short: "Explain a kind and its fields, or what proxies do",
		Long: `Show what a kind is for, its fields, their types and what they mean. KIND is any name
of a kind that portolan api-resources lists. FIELD goes on into the fields; lists and maps
are passed through. No server is asked.

-o json and -o yaml are a JSON schema, such as editors check and complete documents by.

The commands below explain what becomes of one request.`,
		Example: `  portolan explain virtualservice
  portolan explain vs.spec.http.route
  portolan explain destinationrule.spec --recursive
  portolan explain vs -o json > virtualservice.schema.json   # for an editor`,
	}
	explainKind(env, c)
	c.AddCommand(newExplainRequestCommand(env), newExplainRefusalCommand(env))
	return c
}

func newExplainRequestCommand(env *environment) *cobra.Command {
	outputs := []string{"table", "json", "yaml"}
	var output, from, to, path, method, sni, via, ip string
	var headers []string
	var files objects.Files
	c := &cobra.Command{
		Use:   "request --from WORKLOAD|GATEWAY --to HOST:PORT",
		Short: "Show which objects route a request, where it goes, and why it would fail",
		Long: `Show what a proxy does with a request of a client: the listener that takes it, the
VirtualService and the rule of it that matches, the DestinationRule and subset, the
endpoints, what the connected sidecars beside these do, and what would fail and why.
No request is sent: the server builds what it sends the proxy, and simulates an Envoy,
or a gRPC client, that has it.

--from is a connected proxy or gRPC client, by its name, namespace/name, address or
node id; a WorkloadEntry, as namespace/name, or the address of an endpoint, for a
sidecar as it would be there (with the interception NONE); or gateway/NAMESPACE/NAME,
for a router that the Gateway selects.

--to is the host and port that the client calls: for a gateway, a port of its servers;
for a gRPC client, its target. Beside a proxy that captures traffic, the host stands for
the address that the mesh knows of it, and may be an address. It is a request of HTTP
if --path, --method or --header is given, or if the port does not declare another
protocol. --sni is a connection with TLS, which proxies pass on
unread. --header host=NAME has another host than --to in the request.

--via is how the client comes to a proxy that it does not call at an address: the port on
which a sidecar is an HTTP proxy, or a Unix domain socket of a Sidecar or of a Gateway.

With -f the answer is as if the objects of these files were applied.`,
		Example: `  portolan explain request --from shop/vm-12 --to reviews.shop:9080 --path /api/1
  portolan explain request --from gateway/edge/main --to www.example.com:80 --header x-user=anna
  portolan explain request --from vm-12 --to db.shop:5432 -o json
  portolan explain request --from vm-12 --to www.example.com:80 --via 3128`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if from == "" || to == "" {
				return exit.With(exit.Usage, errors.New("say from which proxy and to where: --from WORKLOAD|GATEWAY --to HOST:PORT"))
			}
			query := url.Values{"from": {from}, "to": {to}, "header": headers}
			for name, value := range map[string]string{"path": path, "method": method, "sni": sni, "via": via, "ip": ip} {
				if value != "" {
					query.Set(name, value)
				}
			}
			operations, err := files.Operations(c.Context(), env.Environment)
			if err != nil {
				return err
			}
			var e explain.Explanation
			err = env.AskTheServerOf(c.Context(), explain.Path, query, &e, operations...)
			switch {
			case err != nil:
				return err
			case output != "table":
				return cli.WriteDocument(env.Stdout, output, e)
			}
			return cli.WriteTable(env.Stdout, explanationRows(e))
		},
	}
	f := c.Flags()
	f.StringVar(&from, "from", "", "proxy that sends the request on: a proxy, a workload or a gateway")
	f.StringVar(&to, "to", "", "HOST:PORT or http[s]://HOST:PORT/PATH that the client calls")
	f.StringVar(&path, "path", "", `path of the request, with its query (default "/")`)
	f.StringVar(&method, "method", "", `method of the request (default "GET")`)
	f.StringArrayVar(&headers, "header", nil, "header of the request, NAME=VALUE; can be repeated")
	f.StringVar(&sni, "sni", "", "server name of a connection with TLS")
	f.StringVar(&ip, "ip", "", "address of a gateway's client (default 192.0.2.1)")
	f.StringVar(&via, "via", "", "port of the sidecar's HTTP proxy, or unix:///PATH of a socket of the proxy, that the client uses")
	files.Register(c)
	cli.RegisterOutput(c, &output, outputs...)
	_ = c.RegisterFlagCompletionFunc("from", completeProxies(env))
	_ = c.RegisterFlagCompletionFunc("to", cli.CompleteHosts(env.Environment))
	return c
}

// explanationRows returns the explanation with one fact in each row. It marks failures.
func explanationRows(e explain.Explanation) [][]string {
	rows := [][]string{{"proxy", e.Proxy.Name + ", a " + e.Proxy.Type + connection(e.Proxy)}}
	if e.Request.Address != "" {
		to := fmt.Sprintf("to %s port %d", e.Request.Address, e.Request.Port)
		if names.IsUnix(e.Request.Address) {
			to = "to " + e.Request.Address
		}
		rows = append(rows, []string{"connects", to})
	}
	if e.Listener != "" {
		rows = append(rows, []string{"listener", joinNonEmpty(e.Listener, ofObjects(e.Objects))})
	}
	rows = append(rows, accessRows(e.Access)...)
	if r := e.Route; r != nil {
		object := strings.TrimSpace(r.Object + " " + strings.TrimPrefix(r.Field, "spec."))
		if object == "" {
			object = "of no VirtualService"
		}
		if r.Source != "" {
			object += ", from " + cli.Plain(r.Source)
		}
		if r.Root != "" {
			object += fmt.Sprintf(", a delegate of %s %s", r.Root, strings.TrimPrefix(r.RootField, "spec."))
		}
		rows = append(rows, []string{"route", joinNonEmpty(object, routeName(r.Name), destinationsText(e))})
		if len(e.Destinations) > 0 && e.Request.Protocol != string(simulate.TCP) && e.Request.Protocol != string(simulate.TLS) {
			rows = append(rows, []string{"terms", routeTerms(r)})
		}
		if r.Fault != "" {
			rows = append(rows, []string{"fault", r.Fault})
		}
		if len(r.Mirrors) > 0 {
			rows = append(rows, []string{"mirrored", strings.Join(r.Mirrors, ", ")})
			for _, lost := range r.MirrorsLost {
				rows = append(rows, []string{"copies", "! they are lost: " + lost})
			}
		}
		rows = append(rows, notTaken(r.NotTaken)...)
	} else if len(e.Destinations) > 0 {
		rows = append(rows, []string{"route", joinNonEmpty("of the connection as it is", destinationsText(e))})
	}
	rows = append(rows, patchedRows(e.Patches, e.Plugins, e.NotSimulated)...)
	for _, d := range e.Destinations {
		rows = append(rows, destinationRows(d)...)
	}
	outcome := map[string]string{
		explain.Forwarded: "it goes to the endpoints", explain.Passed: "it passes", explain.Answered: "the proxy answers",
		explain.Fails: "! it fails", explain.PartlyFails: "! a part of the requests fails", explain.Unknown: "! not known",
	}[e.Outcome]
	if providers := providersOf(accessesOf(e)); e.Outcome == explain.Forwarded && len(providers) > 0 {
		outcome += ", if " + strings.Join(providers, ", ") + " lets it pass"
	}
	if e.Status != 0 {
		outcome += fmt.Sprintf(" with %d", e.Status)
	}
	if e.Location != "" {
		outcome += " to " + e.Location
	}
	if e.Reason != "" {
		outcome += ": " + e.Reason
	}
	return append(rows, []string{"outcome", outcome})
}

// accessesOf returns what the policies of all proxies on the way say.
func accessesOf(e explain.Explanation) []*explain.Access {
	out := []*explain.Access{e.Access}
	for _, d := range e.Destinations {
		for _, in := range d.Inbound {
			out = append(out, in.Access)
		}
	}
	return out
}

// destinationRows returns what is known of a destination, and what the sidecars there do.
func destinationRows(d explain.Destination) [][]string {
	rows := [][]string{{"to", joinNonEmpty(addressOf(d), strings.Join(append(d.Rules, d.Services...), ", "), d.LoadBalancer)}}
	if d.TLS != "" {
		rows = append(rows, []string{"encrypted", d.TLS})
	}
	if d.Plaintext != "" {
		rows = append(rows, []string{"encrypted", "no: " + d.Plaintext})
	}
	rows = append(rows, notTaken(d.NotTaken)...)
	rows = append(rows, []string{"endpoints", endpointsText(d)})
	if d.Preference != "" {
		rows = append(rows, []string{"locality", d.Preference})
	}
	for _, w := range d.LeftOut {
		rows = append(rows, []string{"left out", "! " + w})
	}
	for _, in := range d.Inbound {
		rows = append(rows, []string{"inbound", inboundText(in)})
		rows = append(rows, accessRows(in.Access)...)
		rows = append(rows, patchedRows(in.Patches, in.Plugins, in.NotSimulated)...)
	}
	return rows
}

// patchedRows returns a row for each patch of an EnvoyFilter, for each WasmPlugin that does not run as it
// is written, and for each filter that is not simulated.
func patchedRows(patches []explain.Patch, plugins, notSimulated []string) (rows [][]string) {
	for _, p := range patches {
		text := fmt.Sprintf("%s by envoyfilter/%s %s", p.Resource, p.EnvoyFilter, strings.TrimPrefix(p.Field, "spec."))
		if p.Error != "" {
			text = "! not " + text + ": " + p.Error
		}
		if p.Rejected != "" {
			text = "! not " + text + ": the proxy refused it, and keeps what it had: " + cli.Quoted(p.Rejected)
		}
		rows = append(rows, []string{"patched", text})
	}
	for _, text := range plugins {
		rows = append(rows, []string{"plugin", "! " + text})
	}
	for _, text := range notSimulated {
		rows = append(rows, []string{"not known", "! " + text})
	}
	return rows
}

// notTaken returns a row with the fields that a gRPC client ignores, none if there are none.
func notTaken(fields []string) [][]string {
	if len(fields) == 0 {
		return nil
	}
	return [][]string{{"not taken", "! " + cli.FormatList(fields, false)}}
}

// inboundText describes what the sidecars at the endpoints do.
func inboundText(in explain.Inbound) string {
	end := in.Reason
	switch {
	case in.Outcome == explain.Forwarded && in.Application != "":
		end = "to the application at " + in.Application
	case in.Outcome == explain.Forwarded:
		end = "to the application"
	case in.Access != nil && in.Access.Decision == explain.Refused:
		end = "! policies refuse it"
	case in.Outcome != explain.Passed:
		end = "! " + end
	}
	mode := ""
	if in.Mode != "" {
		mode = in.Mode + " by " + in.ModeBy
	}
	return joinNonEmpty("at "+cli.FormatList(in.Endpoints, false), in.Listener, in.Cluster, ofObjects(in.Objects), mode, end)
}

func connection(p explain.Proxy) string {
	if p.Connected {
		return " that is connected"
	}
	return " as it would be"
}

func joinNonEmpty(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, "  ")
}

func ofObjects(objects []string) string {
	if len(objects) == 0 {
		return ""
	}
	return "of " + cli.FormatList(objects, false)
}

// routeName returns the name of a route if it has its own.
func routeName(route string) string {
	if route == "" || route == "default" {
		return ""
	}
	return fmt.Sprintf("%q", route)
}

// destinationsText returns the destinations of requests, with their shares.
func destinationsText(e explain.Explanation) string {
	if len(e.Destinations) == 0 {
		return ""
	}
	return "-> " + strings.Join(cli.MapSlice(e.Destinations, func(d explain.Destination) string {
		name := d.Subset
		if name == "" {
			name = addressOf(d)
		}
		if len(e.Destinations) == 1 {
			return name
		}
		return fmt.Sprintf("%s %.4g %%", name, d.Percent)
	}), ", ")
}

// routeTerms describes the timeout, retries and rewrites of a route.
func routeTerms(r *explain.Route) string {
	out := []string{"no timeout"}
	if r.Timeout != "" {
		out[0] = "timeout " + r.Timeout
	}
	if r.Retries == 0 {
		out = append(out, "no retries")
	} else {
		out = append(out, fmt.Sprintf("retries %d on %s", r.Retries, r.RetryOn))
	}
	if r.PerTryTimeout != "" {
		out = append(out, r.PerTryTimeout+" for each try")
	}
	if r.HostRewritten != "" {
		out = append(out, "host becomes "+r.HostRewritten)
	}
	if r.PathRewritten != "" {
		out = append(out, "path becomes "+r.PathRewritten)
	}
	return strings.Join(out, ", ")
}

// addressOf formats a destination, as in "reviews.shop:9080 v1".
func addressOf(d explain.Destination) string {
	if d.Host == "" {
		return d.Cluster
	}
	return strings.TrimSpace(fmt.Sprintf("%s:%d %s", d.Host, d.Port, d.Subset))
}

// endpointsText counts the endpoints by locality, or says why requests fail.
func endpointsText(d explain.Destination) string {
	parts := cli.MapSlice(d.Localities, func(l explain.Locality) string {
		text := fmt.Sprintf("%d healthy", l.Healthy)
		if l.Healthy < l.Total {
			text = fmt.Sprintf("%d of %d healthy", l.Healthy, l.Total)
		}
		if l.Locality != "" {
			text += " in " + l.Locality
		}
		return text
	})
	if len(d.Endpoints) > 0 {
		parts = append(parts, "at "+cli.FormatList(d.Endpoints, false))
	}
	if d.Fails != "" {
		parts = append(parts, "! "+d.Fails)
	}
	return strings.Join(parts, ", ")
}
