package proxies

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

func newProxyDiffCommand(env *environment) *cobra.Command {
	var dump string
	var where proxyScope
	c := &cobra.Command{
		Use:   "diff NODE",
		Short: "Show what a proxy should have otherwise than it has",
		Long: `Compare what a connected proxy should have with what it acknowledged, as unified
diffs of YAML: a line with - is of the proxy, one with + of what it should have. A
line before each says why: the proxy refused it, has not answered yet, or something
has to go to it first.

With --dump it compares with what the Envoy itself says: the config dump of its admin
interface, /config_dump?include_eds. What is part of the bootstrap or of a listener is
left out, and what the Envoy gives up (it drains); both are counted. A host that the
Envoy itself finds unhealthy is no difference.

The exit code is 0 where there is no difference, 2 where there is one, and another
after an error.` + nodeHelp,
		Example: `  portolan proxy diff vm-12
  curl -s 'http://127.0.0.1:15000/config_dump?include_eds' | portolan proxy diff vm-12 --dump -`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeProxies(env),
		RunE: func(c *cobra.Command, args []string) error {
			if err := where.check(); err != nil {
				return err
			}
			if c.Flags().Changed("dump") {
				return env.diffDump(c.Context(), args[0], where.namespace, dump)
			}
			return env.diffProxy(c.Context(), args[0], where.namespace)
		},
	}
	where.register(c)
	registerDump(c, &dump)
	return c
}

func registerDump(c *cobra.Command, dump *string) {
	c.Flags().StringVar(dump, "dump", "", "file with the config dump of the Envoy, or - for stdin")
	_ = c.MarkFlagFilename("dump", "json")
}

// diffProxy compares what a proxy should have with what it acknowledged.
func (e *environment) diffProxy(ctx context.Context, node, namespace string) error {
	c, err := e.proxyConfig(ctx, node, namespace, url.Values{"differing": {"true"}})
	if err != nil {
		return err
	}
	total, found := 0, 0
	for _, t := range c.Types {
		total += t.Total
		for i := range t.Resources {
			r := &t.Resources[i]
			has, err := r.Has()
			if err != nil {
				return fmt.Errorf("%s %s: %w", t.Name, r.Name, err)
			}
			should, err := r.Should()
			if err != nil {
				return fmt.Errorf("%s %s: %w", t.Name, r.Name, err)
			}
			found++
			if err := e.printDifference(admin.Difference{Type: t.Name, Name: r.Name, Has: has, Should: should}, "acknowledged", whyDifferent(r)); err != nil {
				return err
			}
		}
	}
	if found > 0 {
		fmt.Fprintf(e.Stderr, "%s should have %s otherwise, of %d, as of revision %d.\n", c.Proxy.Name, resourceCount(found), total, c.Revision)
		return cli.ErrDifferences
	}
	fmt.Fprintf(e.Stderr, "%s has all that it should: %s, as of revision %d.\n", c.Proxy.Name, resourceCount(total), c.Revision)
	return nil
}

// whyDifferent returns why a proxy does not have what it should, and the objects that the
// resource comes from.
func whyDifferent(r *admin.ProxyResource) string {
	var why string
	switch {
	case r.State == protocol.Rejected:
		why = fmt.Sprintf("the proxy refused it at revision %d: %s", r.RejectedRevision, cli.Quoted(r.Message))
	case r.InFlight:
		why = "the proxy has not answered yet"
	case r.Unknown:
		why = "it is not known which form the proxy has, and is sent again"
	case len(r.Intended) == 0:
		why = "it is not removed yet, since something of the proxy may need it"
	default:
		why = "it is not sent yet, since something has to go to the proxy first"
	}
	if len(r.Objects) > 0 {
		why += "; of " + cli.FormatList(r.Objects, true)
	}
	return why
}

// diffDump compares what a proxy should have with the config dump in a file.
func (e *environment) diffDump(ctx context.Context, node, namespace, file string) error {
	dump, err := e.readDump(file)
	if err != nil {
		return err
	}
	c, err := e.proxyConfig(ctx, node, namespace, url.Values{})
	if err != nil {
		return err
	}
	if err := checkDump(dump, file, c.Proxy); err != nil {
		return err
	}
	found, err := dump.Differences(c)
	if err != nil {
		return err
	}
	for _, d := range found.Differences {
		if err := e.printDifference(d, "dumped", ""); err != nil {
			return err
		}
	}
	fmt.Fprintf(e.Stderr, "%d of %s differ, as of revision %d. Left out: %d static and %d draining.\n",
		len(found.Differences), resourceCount(found.Compared), c.Revision, dump.Static, found.Draining)
	if len(found.Absent) > 0 {
		fmt.Fprintf(e.Stderr, "The dump lists no %s: take it from /config_dump?include_eds.\n", help.Alternatives(found.Absent))
	}
	if len(found.Differences) > 0 {
		return cli.ErrDifferences
	}
	return nil
}

func (e *environment) readDump(file string) (*admin.Dump, error) {
	in := io.NopCloser(e.Stdin)
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, exit.With(exit.Data, fmt.Errorf("--dump %s: %w", file, err))
		}
		in = opened
	}
	defer func() { _ = in.Close() }()
	dump, err := admin.ReadDump(in)
	if err != nil {
		return nil, exit.With(exit.Data, fmt.Errorf("--dump %s: %w", file, err))
	}
	return dump, nil
}

// checkDump refuses the dump of another proxy.
func checkDump(dump *admin.Dump, file string, of admin.ConnectedProxy) error {
	if dump.Node != "" && dump.Node != of.Node {
		return exit.With(exit.Data, fmt.Errorf("--dump %s: it is of %s, not of %s", file, dump.Node, of.Node))
	}
	return nil
}

// printDifference prints a unified diff, and a line with the reason before it.
func (e *environment) printDifference(d admin.Difference, has, why string) error {
	before, err := messageText(d.Has)
	if err != nil {
		return fmt.Errorf("%s %s: %w", d.Type, d.Name, err)
	}
	after, err := messageText(d.Should)
	if err != nil {
		return fmt.Errorf("%s %s: %w", d.Type, d.Name, err)
	}
	from, to := d.Type+" "+d.Name+"\t"+has, d.Type+" "+d.Name+"\tintended"
	if d.Has == nil {
		from = cli.Nowhere + "\t" + has
	}
	if d.Should == nil {
		to = cli.Nowhere + "\tintended"
	}
	text := udiff.Unified(from, to, before, after)
	if text == "" { // the proxy's form is unknown, or only names are shown
		text = fmt.Sprintf("--- %s\n+++ %s\n", from, to)
	}
	if why != "" {
		text = "# " + why + "\n" + text
	}
	return cli.WriteDiff(e.Stdout, text)
}

// messageText returns a message as YAML, with Envoy's field names; empty for nil.
func messageText(m proto.Message) (string, error) {
	if m == nil {
		return "", nil
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return "", err
	}
	document, err := config.JSONToYAML(text)
	return string(document), err
}
