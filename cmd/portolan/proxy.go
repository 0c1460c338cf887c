package main

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

	"github.com/portolan-mesh/portolan/cache/rest/client"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/propagation"
	"github.com/portolan-mesh/portolan/xds/stream"
)

func newProxyCommand(env *environment) *cobra.Command {
	c := &cobra.Command{Use: "proxy", Short: "Look at the proxies of the mesh"}
	c.AddCommand(newProxyStatusCommand(env))
	return c
}

func newProxyStatusCommand(env *environment) *cobra.Command {
	outputs := []string{"table", "wide", "json", "yaml"}
	var output string
	var only []string
	c := &cobra.Command{
		Use:     "status [NODE]",
		Aliases: []string{"list"}, SuggestFor: []string{"proxy-status", "ps"},
		Short: "Show the connected proxies, and how well they are in step",
		Long: `Show the proxies that are connected to the server, or those of them whose node id
contains NODE: for each type of resources whether the proxy has all of it, and
since when.

  SYNCED    it took the newest, and lacks nothing
  STALE     something was sent that it did not answer yet, or is about to be sent
  REJECTED  it refused the last response; its words are below the table
  NOT SENT  it did not ask for this type

The time is since when it lacks something or has refused it, and since its last
answer where it is in step. REV is the revision of the store that all types are
known to be at. Proxies that were connected in the last day and are not now are
below the table. -o wide shows for each type the nonce of the last response that
was acknowledged, and, in brackets, of one that is under way or was refused; nonces
begin with the revision.`,
		Example: `  portolan proxy status
  portolan proxy status --only rejected,stale
  portolan proxy status vm-12 -o wide`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("-o", output, outputs...); err != nil {
				return err
			}
			node := strings.Join(args, "")
			for _, state := range only {
				if err := oneOf("--only", state, "rejected", "stale"); err != nil {
					return err
				}
			}
			list, err := env.proxies(c.Context(), node)
			if err != nil {
				return err
			}
			list.Items = inState(list.Items, only)
			return env.printProxies(list, described(node, only), output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "form of the output: "+alternatives(outputs))
	completeOutput(c, outputs...)
	c.Flags().StringSliceVar(&only, "only", nil, "only proxies with a type that is rejected, stale or either: rejected,stale")
	return c
}

// proxies are those whose node id contains a text.
func (e *environment) proxies(ctx context.Context, node string) (admin.ProxyList, error) {
	var list admin.ProxyList
	err := e.call(ctx, func(ctx context.Context, c *client.Client) error {
		return c.JSON(ctx, admin.ProxiesPath, &list)
	})
	shown := []xds.ProxyStatus{}
	for _, p := range list.Items {
		if strings.Contains(p.Node, node) {
			shown = append(shown, p)
		}
	}
	list.Items = shown
	if node != "" {
		list.Elsewhere = nil // it is not known who they are
	}
	list.Gone = slices.DeleteFunc(list.Gone, func(g propagation.Gone) bool { return !strings.Contains(g.Node, node) })
	return list, err
}

// inState are the proxies with a type in one of some states, such as rejected; all
// of them where there are no states.
func inState(proxies []xds.ProxyStatus, only []string) []xds.ProxyStatus {
	return slices.DeleteFunc(proxies, func(p xds.ProxyStatus) bool {
		return len(only) > 0 && !slices.ContainsFunc(p.Types, func(t xds.TypeStatus) bool {
			return slices.Contains(only, strings.ToLower(string(t.State)))
		})
	})
}

// described says which proxies were asked for: "" is all.
func described(node string, only []string) (which string) {
	if node != "" {
		which = fmt.Sprintf(" whose node id contains %q", node)
	}
	if len(only) > 0 {
		which += " with a type that is " + strings.ToUpper(alternatives(only))
	}
	return which
}

func (e *environment) printProxies(list admin.ProxyList, which, output string) error {
	if output == "json" || output == "yaml" {
		return writeDocument(e.stdout, output, list)
	}
	if len(list.Items) == 0 {
		fmt.Fprintf(e.stderr, "No proxy%s is connected to %s.\n", which, e.server)
		return writeTable(e.stdout, others(list, e.now()))
	}
	if err := writeTable(e.stdout, proxyRows(list, e.now(), output == "wide")); err != nil {
		return err
	}
	if err := writeTable(e.stdout, rejections(list.Items)); err != nil {
		return err
	}
	return writeTable(e.stdout, others(list, e.now()))
}

func proxyRows(list admin.ProxyList, now time.Time, wide bool) [][]string {
	types := typeNames(list.Items)
	header := append([]string{"NODE", "TYPE", "NS"}, types...)
	header = append(header, "REV", "SERVER", "ENVOY")
	if wide {
		header = append(header, "VARIANT", "CONNECTED", "STALE")
	}
	rows := [][]string{header}
	for _, p := range list.Items {
		kind := p.Type
		if kind == string(discovery.Router) {
			kind = "gateway"
		}
		row := []string{p.Name, kind, p.Namespace}
		for _, name := range types {
			row = append(row, stateOf(p, name, now, wide))
		}
		row = append(row, strconv.FormatInt(p.Revision, 10), serverName(list.Server), p.Envoy)
		if wide {
			row = append(row, p.Variant, age(now, p.ConnectedSince), age(now, p.StaleSince))
		}
		rows = append(rows, row)
	}
	return rows
}

// others are the proxies that this server does not have.
func others(list admin.ProxyList, now time.Time) [][]string {
	rows := offline(list.Gone, now)
	for _, id := range slices.Sorted(maps.Keys(list.Elsewhere)) {
		if n := list.Elsewhere[id]; n > 0 {
			rows = append(rows, []string{"  elsewhere", proxyCount(n), "connected to server " + serverName(id)})
		}
	}
	return rows
}

func proxyCount(n int) string {
	if n == 1 {
		return "1 proxy"
	}
	return fmt.Sprintf("%d proxies", n)
}

// offline are proxies that are connected to no server.
func offline(gone []propagation.Gone, now time.Time) (rows [][]string) {
	for _, g := range gone {
		rows = append(rows, []string{"  offline", nodeName(g.Node), "last seen " + age(now, g.Seen) + " ago"})
	}
	return rows
}

// typeNames are those of all proxies, in the order of the server.
func typeNames(proxies []xds.ProxyStatus) []string {
	var names []string
	for _, p := range proxies {
		for _, t := range p.Types {
			if !slices.Contains(names, t.Name) {
				names = append(names, t.Name)
			}
		}
	}
	return names
}

// stateOf is a state and since when: "SYNCED 3m".
func stateOf(p xds.ProxyStatus, name string, now time.Time, wide bool) string {
	for _, t := range p.Types {
		if t.Name != name {
			continue
		}
		since := t.Answered
		if !t.StaleSince.IsZero() {
			since = t.StaleSince
		}
		state := strings.TrimSpace(string(t.State) + " " + age(now, since))
		if wide {
			state = strings.TrimSpace(state + " " + t.AckedNonce)
			if open := cmp.Or(t.SentNonce, t.RejectedNonce); open != "" {
				state += " (" + open + ")"
			}
		}
		return state
	}
	return string(stream.NotSent)
}

// rejections are what proxies refused, in their own words.
func rejections(proxies []xds.ProxyStatus) [][]string {
	var rows [][]string
	for _, p := range proxies {
		for _, t := range p.Types {
			if t.State == stream.Rejected {
				row := []string{"  rejected", p.Name, t.Name, fmt.Sprintf("rev %d", t.RejectedRevision), quoted(t.Message)}
				if len(t.Objects) > 0 {
					row = append(row, "of "+items(t.Objects, false))
				}
				rows = append(rows, row)
			}
		}
	}
	return rows
}
