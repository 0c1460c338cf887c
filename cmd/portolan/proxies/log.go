package proxies

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/transcript"
)

// logPause is how long -f waits before it asks again.
const logPause = time.Second

type logOptions struct {
	where  proxyScope
	output string
	follow bool
	since  time.Duration
	tail   int
}

func newProxyLogCommand(env *environment) *cobra.Command {
	var o logOptions
	c := &cobra.Command{
		Use: "log NODE", Aliases: []string{"logs"},
		Short: "Show what a proxy asked for, what it was sent, and what it answered",
		Long: `Show what was said on the streams of a proxy, the newest last: the types that it asked
for, each response with its size, and whether the proxy took it, how soon, or why it
refused it. The server that has the proxy keeps the last 64 entries of it, and those of
the last 500 proxies that are gone, while it runs. There is nothing of the resources
in it, and no word about a secret.` + nodeHelp,
		Example: `  portolan proxy log vm-12
  portolan proxy log vm-12 -f --tail 10
  portolan proxy log vm-12 --since 5m -o jsonl`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeProxies(env),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case o.since < 0:
				return exit.With(exit.Usage, fmt.Errorf("--since %s: give how long ago, such as 90s or 5m", o.since))
			case o.tail < 0 && c.Flags().Changed("tail"):
				return exit.With(exit.Usage, fmt.Errorf("--tail %d: give how many entries, from 0 on", o.tail))
			}
			if err := o.where.check(); err != nil {
				return err
			}
			return o.run(c.Context(), env, args[0])
		},
	}
	o.where.register(c)
	cli.RegisterOutput(c, &o.output, "", "jsonl")
	f := c.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "show what is said from now on, too")
	f.DurationVar(&o.since, "since", 0, "only entries of so long ago and later, such as 90s or 5m")
	f.IntVar(&o.tail, "tail", -1, "how many of the entries to begin with, the newest (default all)")
	return c
}

func (o *logOptions) run(ctx context.Context, env *environment, node string) error {
	query := url.Values{"node": {node}}
	if o.where.namespace != "" {
		query.Set("namespace", o.where.namespace)
	}
	if o.since > 0 {
		query.Set("after", env.Now().Add(-o.since).Format(time.RFC3339Nano))
	}
	for first := true; ; first = false {
		var log admin.ProxyLog
		err := hintNamespace(env.AskTheServerOf(ctx, admin.ProxyLogPath, query, &log), o.where.namespace)
		switch {
		case err != nil && ctx.Err() != nil && o.follow:
			return nil // the user has seen enough
		case err != nil:
			return err
		}
		if n := len(log.Items); first && o.tail >= 0 && n > o.tail {
			query.Set("after", log.Items[n-1].Time.Format(time.RFC3339Nano))
			log.Items = log.Items[n-o.tail:]
		}
		if err := o.print(env, log.Items); err != nil || !o.follow {
			return err
		}
		if n := len(log.Items); n > 0 {
			query.Set("after", log.Items[n-1].Time.Format(time.RFC3339Nano))
		}
		query.Set("node", log.Node) // also where another proxy of that name comes
		if err := retry.Sleep(ctx, logPause); err != nil {
			return nil
		}
	}
}

func (o *logOptions) print(env *environment, entries []transcript.Entry) error {
	for _, e := range entries {
		text := entryText(e)
		if o.output == "jsonl" {
			line, err := json.Marshal(e)
			if err != nil {
				return err
			}
			text = string(line)
		}
		if _, err := fmt.Fprintln(env.Stdout, text); err != nil {
			return err
		}
	}
	return nil
}

// entryText returns an entry as a line for people.
func entryText(e transcript.Entry) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch e.Event {
	case transcript.Sent:
		add("%s", cli.CountOf(e.Resources, "resource"))
		if e.Removed > 0 {
			add("%d removed", e.Removed)
		}
		add("%s", bytesText(int64(e.Bytes)))
	case transcript.Requested:
		switch {
		case e.Resources == 0 && e.Removed == 0:
			add("all")
		case e.Removed == 0:
			add("%s", cli.CountOf(e.Resources, "name"))
		default:
			add("%s, %d given up", cli.CountOf(e.Resources, "name"), e.Removed)
		}
	case transcript.Acknowledged, transcript.Refused:
		add("after %s", tookText(e.Took))
	}
	if e.Nonce != "" {
		add("nonce %s", cli.Plain(e.Nonce))
	}
	if e.Version != "" {
		add("version %s", cli.Plain(e.Version))
	}
	if e.Message != "" {
		add("%s", cli.Plain(e.Message))
	}
	return fmt.Sprintf("%s  %-5s  %-12s  %s", e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), cli.CellText(e.Type), e.Event, strings.Join(parts, ", "))
}

// tookText returns how long something took, with three digits at most.
func tookText(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// bytesText returns a size in the unit in which it is short.
func bytesText(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
