package debug

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
)

func newBundleCommand(env *environment) *cobra.Command {
	var o struct {
		file  string
		nodes []string
		force bool
	}
	c := &cobra.Command{
		Use:   "bundle [FILE]",
		Short: "Save what a report of a fault needs, from one server, to a file",
		Long: `Save what a report of a fault needs to one archive, which only you can read, by
default under a name that has the time: the version and the settings of the server,
its health by check, metrics and profiles, the state of the store and of its members,
the proxies and what they have acknowledged, findings, events, the last changes and
the newest lines of the log. The README in it says what each file is.

It has no object, and no key, token or password: whatever looks like one is replaced
by [redacted]. It has names: of objects, hosts, users and machines. Look through it
before you give it away. --node adds the whole configuration of a proxy.

The settings, the log and the profiles are given to the user who runs the server, on
the server's machine, and to administrators. What the server does not give is named
in errors.txt in the archive and on standard error, and the exit code is 1; the rest
is saved. Nothing is saved where the server cannot be reached or does not know you.`,
		Example: `  portolan debug bundle
  portolan debug bundle fault.tar.gz --node vm-12`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.file = args[0]
			} else {
				o.file = "portolan-debug-" + env.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
			}
			return env.bundle(c.Context(), o.file, o.nodes, o.force)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&o.nodes, "node", nil, "add the configuration of a proxy: its node id, or a part that identifies it; may be repeated")
	f.BoolVar(&o.force, "force", false, "replace the file if it exists")
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"tar.gz"}, cobra.ShellCompDirectiveFilterFileExt
	}
	return c
}

// bundle writes the archive, and says what is missing in it.
func (e *environment) bundle(ctx context.Context, file string, nodes []string, force bool) error {
	if file == "" {
		return exit.With(exit.Usage, errors.New("the name of the archive is empty: name a file, or leave it out"))
	}
	out, err := createArchive(file, force, e.Now())
	if errors.Is(err, fs.ErrExist) {
		return exit.With(exit.Usage, fmt.Errorf("%w: choose another name, or replace it with --force", err))
	}
	if err != nil {
		return err
	}
	defer out.discard()
	missing, err := e.collect(ctx, out, nodes)
	if err != nil {
		return err
	}
	size, err := out.finish()
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stdout, "saved %s: %s, %s\n", file, cli.CountOf(len(out.files), "file"), cli.FormatMiB(size))
	e.Warn(missing)
	if len(missing) > 0 {
		return fmt.Errorf("%s is not complete: %s missing in it, see above and its errors.txt", file, cli.CountOf(len(missing), "file"))
	}
	return nil
}

// maxUnanswered is how many parts in a row may get no answer before the rest is not asked for.
const maxUnanswered = 2

// collect writes all parts, and returns a line for each that is missing. If the server gives
// none at all, it returns why.
func (e *environment) collect(ctx context.Context, out *archive, nodes []string) (missing []string, err error) {
	given, unanswered := 0, 0
	err = e.CallFor(ctx, 0, func(ctx context.Context, c *client.Client) error {
		var first error
		for _, p := range append(parts(), e.proxyParts(nodes)...) {
			if unanswered == maxUnanswered {
				missing = append(missing, p.name+": not asked for, since the server did not answer before")
				continue
			}
			text, err := e.fetch(ctx, c, p)
			switch {
			case errors.Is(err, context.Canceled), apierrors.IsUnauthorized(err):
				return err
			case err != nil:
				if exit.Of(err) == exit.Unreachable {
					if given == 0 {
						return err
					}
					unanswered++
				} else {
					unanswered = 0
				}
				if first == nil {
					first = err
				}
				missing = append(missing, fmt.Sprintf("%s: %v", p.name, err))
				continue
			}
			given, unanswered = given+1, 0
			if err := out.add(p.name, p.what, text, p.binary); err != nil {
				return err
			}
		}
		if given == 0 {
			return first
		}
		if len(missing) > 0 {
			return out.add("errors.txt", "what the server did not give, and why", []byte(strings.Join(missing, "\n")+"\n"), false)
		}
		return nil
	})
	return missing, err
}

// fetch gets a part within --request-timeout.
func (e *environment) fetch(ctx context.Context, c *client.Client, p part) ([]byte, error) {
	if e.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.Timeout)
		defer cancel()
	}
	text, err := p.fetch(ctx, e, c)
	return text, e.ExplainTimeout(err)
}
