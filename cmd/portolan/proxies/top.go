package proxies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// topOrders are the values of --sort-by, and what they put first.
var topOrders = map[string]func(a, b progress.ProxyStatus) int{
	"bytes":    func(a, b progress.ProxyStatus) int { return cmp.Compare(b.Traffic.Bytes, a.Traffic.Bytes) },
	"pushes":   func(a, b progress.ProxyStatus) int { return cmp.Compare(b.Traffic.Responses, a.Traffic.Responses) },
	"ack":      func(a, b progress.ProxyStatus) int { return cmp.Compare(b.Traffic.MeanTook, a.Traffic.MeanTook) },
	"refusals": func(a, b progress.ProxyStatus) int { return cmp.Compare(b.Traffic.Refusals, a.Traffic.Refusals) },
	"name":     func(a, b progress.ProxyStatus) int { return strings.Compare(a.Node, b.Node) },
}

var topOrderNames = []string{"bytes", "pushes", "ack", "refusals", "name"}

// topPause is how long -w waits before it refreshes.
const topPause = 2 * time.Second

type topOptions struct {
	where         proxyScope
	output, order string
	limit         int
	watch         bool
}

func newProxyTopCommand(env *environment) *cobra.Command {
	var o topOptions
	c := &cobra.Command{
		Use:   "top [NODE]",
		Short: "Show which proxies cost the most: bytes, pushes, time to take them, refusals",
		Long: `Show what the streams of proxies have cost since they were opened, the most first: how
many responses were pushed, with how many resources and bytes, how long the proxy takes to
acknowledge one, on average and at most, and how many it refused. With NODE it shows
those whose node id contains that.`,
		Example: `  portolan proxy top
  portolan proxy top -n shop --sort-by ack
  portolan proxy top --sort-by refusals --limit 5
  portolan proxy top -w`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeProxies(env),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case o.limit < 0:
				return exit.With(exit.Usage, fmt.Errorf("--limit %d: give how many proxies to show; 0 is all", o.limit))
			case o.watch && !env.Screen():
				return exit.With(exit.Usage, errors.New("-w refreshes a terminal, and the output goes elsewhere: leave it out"))
			case o.watch && o.output != "table":
				return exit.With(exit.Usage, errors.New("-w refreshes a table: leave -o out"))
			}
			if err := cmp.Or(o.where.check(), cli.OneOf("--sort-by", o.order, topOrderNames...)); err != nil {
				return err
			}
			node := strings.Join(args, "")
			if !o.watch {
				return o.run(c.Context(), env, node)
			}
			return refresh(c.Context(), env.Stdout, func(ctx context.Context) error { return o.run(ctx, env, node) })
		},
	}
	o.where.register(c)
	cli.RegisterOutput(c, &o.output, "table", "json", "yaml")
	f := c.Flags()
	f.StringVar(&o.order, "sort-by", "bytes", "what to show first: bytes, pushes, ack, refusals or name")
	_ = c.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(topOrderNames, cobra.ShellCompDirectiveNoFileComp))
	f.IntVar(&o.limit, "limit", 0, "how many proxies to show; 0 is all")
	f.BoolVarP(&o.watch, "watch", "w", false, "refresh the table, on a terminal")
	return c
}

// refresh draws again and again on a screen, until ctx ends or drawing fails.
func refresh(ctx context.Context, screen io.Writer, draw func(context.Context) error) error {
	const clear = "\x1b[H\x1b[2J"
	for {
		fmt.Fprint(screen, clear)
		if err := draw(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		if retry.Sleep(ctx, topPause) != nil {
			return nil // the user has seen enough
		}
	}
}

func (o *topOptions) run(ctx context.Context, env *environment, node string) error {
	list, err := env.proxies(ctx, node, o.where.namespace)
	if err != nil {
		return err
	}
	slices.SortStableFunc(list.Items, topOrders[o.order])
	if o.limit > 0 {
		list.Items = list.Items[:min(o.limit, len(list.Items))]
	}
	if o.output != "table" {
		return cli.WriteDocument(env.Stdout, o.output, list)
	}
	if len(list.Items) == 0 {
		fmt.Fprintf(env.Stderr, "No proxy%s is connected.\n", describeSelection(node, o.where.namespace, nil))
		return nil
	}
	rows := [][]string{{"NODE", "NS", "PUSHES", "RESOURCES", "BYTES", "ACK", "LONGEST", "REFUSALS", "CONNECTED", "SERVER"}}
	for _, p := range list.Items {
		t, ack, longest := p.Traffic, "", ""
		if t.Acks+t.Refusals > 0 {
			ack, longest = tookText(t.MeanTook), tookText(t.LongestTook)
		}
		rows = append(rows, []string{
			p.Name, p.Namespace, strconv.FormatInt(t.Responses, 10), strconv.FormatInt(t.Resources, 10), bytesText(t.Bytes), ack, longest,
			strconv.FormatInt(t.Refusals, 10), cli.Age(env.Now(), p.ConnectedSince), cli.ServerName(cmp.Or(p.Server, list.Server)),
		})
	}
	if err := cli.WriteTable(env.Stdout, rows); err != nil {
		return err
	}
	return cli.WriteTable(env.Stdout, elsewhereRows(list))
}
