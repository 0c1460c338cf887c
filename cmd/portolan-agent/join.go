package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/address"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/envoy"
	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/discovery/identity/invitation"
	"github.com/portolan-mesh/portolan/discovery/node"
)

// joinFlags are the flags of join.
type joinFlags struct {
	dir, name, kind, interception, admin, envoy, metrics, ready string
	ips                                                         []string
	ttl                                                         time.Duration
	labels                                                      map[string]string
	replace                                                     bool
}

func newJoin(env *environment) *cobra.Command {
	var o joinFlags
	c := &cobra.Command{
		Use:   "join INVITATION",
		Short: "Join this machine to the mesh by an invitation",
		Long: `Join this machine to the mesh by an invitation, which portolan machine invite prints.

The machine gets its first certificate, with a key that never leaves it, and the file of
the agent is written. The invitation is not kept. Joining again replaces the certificate,
and in the file what the invitation and the flags say; the rest of the file stays. An
invitation that would make the machine another one, of another namespace, service account
or group, needs --replace; a running agent is that once it is started again.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.With(exit.Usage, errors.New("give one invitation: portolan machine invite prints the whole line"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return env.join(c, o, args[0]) },
	}
	f := c.Flags()
	f.StringVar(&o.dir, "dir", "", "one directory for the file, the state and the sockets, for an agent without root; --config then names the file in it")
	f.BoolVar(&o.replace, "replace", false, "let a machine that has joined become another one, of the namespace, service account and group of the invitation")
	f.StringVar(&o.name, "name", "", "name of the workload (default the name of the machine)")
	f.StringSliceVar(&o.ips, "ip", nil, "address by which the mesh knows the workload, a range in which it is, or its interface; may be repeated (default the address from which the machine reaches a server)")
	f.StringVar(&o.kind, "type", string(node.Sidecar), "sidecar or router")
	f.StringVar(&o.interception, "interception", "", "how traffic gets to a sidecar: NONE, REDIRECT or TPROXY, which the agent then captures (default NONE)")
	f.StringToStringVar(&o.labels, "labels", nil, "labels of the workload, KEY=VALUE,...")
	f.DurationVar(&o.ttl, "ttl", 0, "for how long each certificate is to be valid; 0 leaves it to the server")
	f.StringVar(&o.envoy, "envoy", "", "binary of Envoy (default envoy of the PATH)")
	f.StringVar(&o.admin, "admin-address", "", "host:port of Envoy's own interface (default 127.0.0.1:15000)")
	f.StringVar(&o.metrics, "metrics-address", "", `host:port of /metrics, the agent's and Envoy's; "off" for none (default 127.0.0.1:15020)`)
	f.StringVar(&o.ready, "ready-address", "", `host:port of /healthz/ready, for load balancers; "off" for none (default 127.0.0.1:15021)`)
	return c
}

func (e *environment) join(c *cobra.Command, o joinFlags, text string) error {
	in, err := invitation.Parse(text)
	if err != nil {
		return exit.With(exit.Data, err)
	}
	file := e.config
	out, err := config.Stored(file)
	if o.dir != "" {
		if o.dir, err = filepath.Abs(o.dir); err != nil {
			return exit.With(exit.Data, err)
		}
		file = filepath.Join(o.dir, "config.yaml")
		out, err = config.Stored(file)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.Data, fmt.Errorf("%w: mend it, or move it away", err))
	}
	was := memberOf(out.Proxy)
	if err := was.mayBecome(invitedAs(in), o.replace); err != nil {
		return err
	}
	if out, err = o.complete(out, in); err == nil {
		err = o.present()
	}
	if err != nil {
		return exit.With(exit.Data, err)
	}
	servers := enroll.Servers{URLs: in.API, Dir: out.Certificate(), Token: in.Token, Agent: e.agent()}
	if err := os.MkdirAll(out.State, 0o700); err != nil {
		return exit.With(exit.Data, fmt.Errorf("state: %w: join as root, or name a directory with --dir", err))
	}
	got, err := enroll.Request(c.Context(), enroll.Options{Dir: out.Certificate(), TTL: out.CertificateTTL.Duration, Ask: servers.Ask, Logger: e.logger()})
	if err != nil {
		return e.notJoined(c.Context(), out.WithDefaults(), in, err)
	}
	if err := errors.Join(out.Write(file), handOver(out, file)); err != nil {
		return exit.With(exit.Data, err)
	}
	fmt.Fprintf(e.stdout, "This machine is %s, until %s; the agent renews that.\n", got.Identity, got.NotAfter.UTC().Format(time.RFC3339))
	if now := memberOf(out.Proxy); was != (membership{}) && was != now {
		fmt.Fprintf(e.stdout, "It was %s, and is now %s.\n", was, now)
	}
	if os.Geteuid() == 0 && file == config.DefaultFile {
		if err := errors.Join(giveCapabilities(out, packagedDropIns, unitDropIns), reloadUnits(c.Context())); err != nil {
			return exit.With(exit.Data, fmt.Errorf("the capabilities of the unit: %w", err))
		}
	}
	if text := reload(c.Context(), out, file, was); text != "" {
		fmt.Fprintln(e.stdout, text)
		return nil
	}
	fmt.Fprintf(e.stdout, "%s has what the agent does. Start it:\n  %s\n", file, howToStart(file))
	if uid, _ := out.Owner(); uid == 0 && out.Capture != nil {
		fmt.Fprintf(e.stdout, "To capture traffic it needs a user of its own, with the capability NET_ADMIN: the package's unit has both. Without it, give %s and %s to that user first.\n", file, out.State)
	}
	return nil
}

// present returns an error if something that the flags name is not on the machine.
func (o joinFlags) present() error {
	var all *multierror.Error
	if len(o.ips) > 0 {
		if _, err := address.Of(o.ips, ""); err != nil {
			all = multierror.Append(all, fmt.Errorf("--ip: %w: nothing has changed here", err))
		}
	}
	if o.envoy != "" {
		if _, err := exec.LookPath(o.envoy); err != nil {
			all = multierror.Append(all, fmt.Errorf("--envoy: %w: nothing has changed here", err))
		}
	}
	return all.ErrorOrNil()
}

// notJoined says what to do when a machine got no certificate.
func (e *environment) notJoined(ctx context.Context, c config.Config, in invitation.Invitation, err error) error {
	var unreachable *call.UnreachableError
	switch {
	case errors.As(err, &unreachable):
		why := "let this machine reach it, or make an invitation with other servers (portolan machine invite --api-url)"
		if c.Capture != nil && !envoy.Live(ctx, c.Envoy.Admin) && firewall(c).Refuses(ctx, c.Rules()) {
			why = "the rules of capture are in force here, and no Envoy takes connections: start the agent, or let all pass by portolan-agent capture remove"
		}
		return exit.With(exit.Unreachable, fmt.Errorf("cannot reach the server at %s: %w: %s", unreachable.Server, unreachable.Err, why))
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		who := "--service-account " + in.ServiceAccount
		if in.Group != "" {
			who = "--group " + in.Group
		}
		return fmt.Errorf("%w: nothing has changed here; the next invitation for this machine comes from portolan machine invite -n %s %s", err, in.Namespace, who)
	}
	return err
}

// howToStart returns the command that starts the agent.
func howToStart(file string) string {
	if file != config.DefaultFile {
		return "portolan-agent run --config " + file
	}
	if _, err := os.Stat(packagedDropIns); err == nil {
		return "systemctl enable --now portolan-agent"
	}
	return "portolan-agent run"
}

// handOver gives what root has written to the user of the agent, whose the state directory is.
func handOver(c config.Config, file string) error {
	uid, gid := c.Owner()
	if os.Geteuid() != 0 || uid == 0 {
		return nil
	}
	return errors.Join(os.Lchown(file, uid, gid), filepath.WalkDir(c.State, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	}))
}

// complete returns the file of an agent after it has joined. What the file says already stays,
// unless a flag or the invitation says otherwise.
func (o joinFlags) complete(c config.Config, in invitation.Invitation) (config.Config, error) {
	c.API, c.XDS = in.API, in.XDS
	c.Proxy.Namespace, c.Proxy.ServiceAccount, c.Proxy.Group = in.Namespace, in.ServiceAccount, in.Group
	c.State, c.Run = cmp.Or(c.State, config.DefaultState), cmp.Or(c.Run, config.DefaultRun)
	if o.dir != "" {
		c.State, c.Run = o.dir, o.dir
	}
	c.Proxy.Type = node.ProxyType(cmp.Or(o.kind, string(c.Proxy.Type)))
	c.Proxy.Interception = node.InterceptionMode(cmp.Or(o.interception, string(c.Proxy.Interception)))
	if m := c.Proxy.Interception; c.Capture == nil && (m == node.InterceptionRedirect || m == node.InterceptionTproxy) {
		c.Capture, c.DNS = &config.Capture{}, cmp.Or(c.DNS, &config.DNS{})
	}
	c.Envoy.Path, c.Envoy.Admin = cmp.Or(o.envoy, c.Envoy.Path), cmp.Or(o.admin, c.Envoy.Admin)
	c.Metrics, c.Ready = cmp.Or(o.metrics, c.Metrics), cmp.Or(o.ready, c.Ready)
	if o.ttl != 0 {
		c.CertificateTTL.Duration = o.ttl
	}
	if len(o.labels) > 0 {
		c.Proxy.Labels = o.labels
	}
	if c.Proxy.Name = cmp.Or(o.name, c.Proxy.Name); c.Proxy.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("--name: %w: name the workload", err)
		}
		c.Proxy.Name, _, _ = strings.Cut(strings.ToLower(host), ".")
	}
	if len(o.ips) > 0 {
		c.Proxy.IPs = o.ips
	}
	return c, c.Validate()
}
