package proxies

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/admission"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/progress"
)

func newProxyCommand(env *environment) *cobra.Command {
	c := &cobra.Command{Use: "proxy", Short: "Look at the proxies of the mesh, and have them connect anew"}
	c.AddCommand(newProxyStatusCommand(env), newProxyConfigCommand(env), newProxyDiffCommand(env), newProxyLogCommand(env), newProxyTopCommand(env), newProxyDisconnectCommand(env))
	return c
}

func newProxyStatusCommand(env *environment) *cobra.Command {
	outputs := []string{"table", "wide", "json", "yaml"}
	var output string
	var only []string
	var all bool
	var where proxyScope
	c := &cobra.Command{
		Use:     "status [NODE]",
		Aliases: []string{"list"}, SuggestFor: []string{"proxy-status", "ps"},
		Short: "Show the connected proxies, and how well they are in step",
		Long: `Show the proxies that are connected to the servers of the store, or those of them whose
node id contains NODE: for each type of resources whether the proxy has all of it, and
since when.

  SYNCED    it took the newest, and lacks nothing
  STALE     something was sent that it did not answer yet, or is about to be sent
  REJECTED  it refused the last response; its words are below the table
  NOT SENT  it did not ask for this type

The time is since when it lacks something or has refused it, and since its last
answer where it is in step; without one it never had to answer. VHDS is the type of
virtual hosts, which Envoys of 1.40 and later take one by one. REV is the revision of the store that all types are
known to be at. CERT is how long the certificate of the machine is good. AGENT is the version of its
portolan-agent, which says since when the Envoy is UP, and the state of CAPTURE. Proxies that were connected in the last hour and are not now are
below the table; those of the last day are counted, and named with --all. So are those
that were refused in the last hour, since their identity is another than they say. -o wide shows for each type the nonce of the last response that
was acknowledged, and, in brackets, of one that is under way or was refused; nonces
begin with the revision.

Control planes that take the objects of the mesh have a table of their own. No wait and
no condition is about them.`,
		Example: `  portolan proxy status
  portolan proxy status -n shop
  portolan proxy status --only rejected,stale
  portolan proxy status vm-12 -o wide`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeProxies(env),
		RunE: func(c *cobra.Command, args []string) error {
			node := strings.Join(args, "")
			for _, state := range only {
				if err := cli.OneOf("--only", state, "rejected", "stale"); err != nil {
					return err
				}
			}
			if err := where.check(); err != nil {
				return err
			}
			list, err := env.proxies(c.Context(), node, where.namespace)
			if err != nil {
				return err
			}
			list.Items = inState(list.Items, only)
			return env.printProxies(list, describeSelection(node, where.namespace, only), output, all || node != "")
		},
	}
	cli.RegisterOutput(c, &output, outputs...)
	where.register(c)
	c.Flags().BoolVar(&all, "all", false, "name all proxies that are offline, however long and many")
	c.Flags().StringSliceVar(&only, "only", nil, "only proxies with a type that is rejected, stale or either: rejected,stale")
	return c
}

// proxies returns the proxies of a namespace, of all if it is empty, whose node id contains a
// text.
func (e *environment) proxies(ctx context.Context, node, namespace string) (admin.ProxyList, error) {
	list, err := e.Proxies(ctx, namespace)
	if err != nil {
		return list, hintNamespace(err, namespace)
	}
	shown := []progress.ProxyStatus{}
	for _, p := range list.Items {
		if strings.Contains(p.Node, node) {
			shown = append(shown, p)
		}
	}
	list.Items = shown
	list.Refused = slices.DeleteFunc(list.Refused, func(r admission.Refusal) bool { return !strings.Contains(r.Node, node) })
	list.Gone = slices.DeleteFunc(list.Gone, func(g progress.Place) bool { return !strings.Contains(g.Node, node) })
	return list, nil
}

// inState returns the proxies that have a type in one of these states, such as rejected; all
// proxies if there are no states.
func inState(proxies []progress.ProxyStatus, only []string) []progress.ProxyStatus {
	return slices.DeleteFunc(proxies, func(p progress.ProxyStatus) bool {
		return len(only) > 0 && !slices.ContainsFunc(p.Types, func(t progress.TypeStatus) bool {
			return slices.Contains(only, strings.ToLower(string(t.State)))
		})
	})
}

// describeSelection describes the selected proxies; "" means all.
func describeSelection(node, namespace string, only []string) (which string) {
	if namespace != "" {
		which = " of namespace " + namespace
	}
	if node != "" {
		which += fmt.Sprintf(" whose node id contains %q", node)
	}
	if len(only) > 0 {
		which += " with a type that is " + help.Alternatives(cli.MapSlice(only, strings.ToUpper))
	}
	return which
}

// If all is set, printProxies lists all offline ones by name.
func (e *environment) printProxies(list admin.ProxyList, which, output string, all bool) error {
	if output == "json" || output == "yaml" {
		return cli.WriteDocument(e.Stdout, output, list)
	}
	if len(list.Items) == 0 {
		fmt.Fprintf(e.Stderr, "No proxy%s is connected.\n", which)
		return cli.WriteTable(e.Stdout, otherProxyRows(list, e.Now(), all))
	}
	for _, rows := range [...][][]string{
		proxyRows(list, e.Now(), output == "wide"), controlPlaneRows(list, e.Now(), output == "wide"),
		rejections(list.Items), otherProxyRows(list, e.Now(), all),
	} {
		if err := cli.WriteTable(e.Stdout, rows); err != nil {
			return err
		}
	}
	return nil
}

func proxyRows(list admin.ProxyList, now time.Time, wide bool) [][]string {
	proxies, _ := byRole(list.Items)
	if len(proxies) == 0 {
		return nil
	}
	types := typeNames(proxies)
	header := append([]string{"NODE", "TYPE", "NS"}, types...)
	header = append(header, "REV", "SERVER", "ENVOY", "AGENT", "CERT", "UP", "CAPTURE")
	if wide {
		header = append(header, "VARIANT", "CONNECTED", "STALE")
	}
	rows := [][]string{header}
	for _, p := range proxies {
		kind := p.Type
		if kind == string(discovery.Router) {
			kind = "gateway"
		}
		row := []string{p.Name, kind, p.Namespace}
		for _, name := range types {
			row = append(row, stateOf(p, name, now, wide))
		}
		row = append(row, strconv.FormatInt(p.Revision, 10), cli.ServerName(cmp.Or(p.Server, list.Server)), p.Envoy)
		row = append(row, machineCells(p, now)...)
		if wide {
			row = append(row, p.Variant, cli.Age(now, p.ConnectedSince), cli.Age(now, p.StaleSince))
		}
		rows = append(rows, row)
	}
	return rows
}

// machineCells returns the version of the agent, when the certificate ends, since when the Envoy
// runs, and the state of capture. All but the certificate are what the agent says.
func machineCells(p progress.ProxyStatus, now time.Time) []string {
	if p.Machine == nil {
		return []string{"", cli.Ends(now, p.CertificateEnds), "", ""}
	}
	return []string{cli.Plain(p.Machine.Agent), cli.Ends(now, p.CertificateEnds), cli.Age(now, p.Machine.EnvoySince), cli.Plain(p.Machine.Capture)}
}

// otherProxyRows returns rows for the proxies that are not connected to this server.
func otherProxyRows(list admin.ProxyList, now time.Time, all bool) [][]string {
	var rows [][]string
	if list.Configuration > 0 && len(list.Items) > 0 {
		rows = append(rows, []string{"  configuration", fmt.Sprintf("rev %d", list.Configuration), "is its last change; later revisions of the store are statuses"})
	}
	rows = append(rows, cli.Offline(list.Gone, len(list.Gone), now, all)...)
	rows = append(rows, elsewhereRows(list)...)
	return append(rows, refusedRows(list.Refused, now, all)...)
}

// elsewhereRows returns rows for the proxies of servers that could not be asked.
func elsewhereRows(list admin.ProxyList) (rows [][]string) {
	for _, id := range slices.Sorted(maps.Keys(list.Elsewhere)) {
		if n := list.Elsewhere[id]; n > 0 {
			where := "connected to server " + cli.ServerName(id) + ", which cannot be asked from here"
			if api := list.APIs[id]; api != "" {
				where += ": --server " + api
			}
			rows = append(rows, []string{"  elsewhere", cli.ProxyCount(n), where})
		}
	}
	return rows
}

// refusedRows returns rows for the clients that were refused for their identity.
func refusedRows(refused []admission.Refusal, now time.Time, all bool) (rows [][]string) {
	for i, r := range refused {
		if !all && i == cli.MaxOffline {
			return append(rows, []string{"  refused", cli.ProxyCount(len(refused)-i) + " more", "see portolan proxy status --all"})
		}
		name := "from " + r.Address
		if r.Node != "" {
			name = cli.NodeName(r.Node)
		}
		rows = append(rows, []string{"  refused", name, fmt.Sprintf("%s ago (%d times): %s", cli.Age(now, r.Last), r.Times, r.Reason)})
	}
	return rows
}

// rare are the types that only DNS servers beside proxies, and agents of machines, ask for.
var rare = []string{"NDS", "NAMES", "PROXY", "BOOTSTRAP", "PROBE"}

// typeNames returns the types of all proxies, in the order of the server, without rare ones that
// none has asked for.
func typeNames(proxies []progress.ProxyStatus) []string {
	var names []string
	for _, p := range proxies {
		for _, t := range p.Types {
			if !slices.Contains(names, t.Name) && (t.State != protocol.NotSent || !slices.Contains(rare, t.Name)) {
				names = append(names, t.Name)
			}
		}
	}
	return names
}

// stateOf returns the state of a type and how long it lasts, as in "SYNCED 3m".
func stateOf(p progress.ProxyStatus, name string, now time.Time, wide bool) string {
	for _, t := range p.Types {
		if t.Name != name {
			continue
		}
		since := t.Answered
		if !t.StaleSince.IsZero() {
			since = t.StaleSince
		}
		state := strings.TrimSpace(string(t.State) + " " + cli.Age(now, since))
		if wide {
			state = strings.TrimSpace(state + " " + t.AckedNonce)
			if open := cmp.Or(t.SentNonce, t.RejectedNonce); open != "" {
				state += " (" + open + ")"
			}
		}
		return state
	}
	return string(protocol.NotSent)
}

// rejections returns rows for the resources that proxies rejected, with their messages.
func rejections(proxies []progress.ProxyStatus) [][]string {
	var rows [][]string
	for _, p := range proxies {
		for _, t := range p.Types {
			for _, r := range t.Refused {
				row := []string{"  rejected", p.Name, t.Name, r.Name, fmt.Sprintf("rev %d", r.Revision), cli.Quoted(r.Message)}
				if len(r.Objects) > 0 {
					row = append(row, "of "+cli.FormatList(r.Objects, false))
				}
				rows = append(rows, row)
			}
		}
	}
	return rows
}
