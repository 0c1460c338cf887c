package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/envoy"
)

func envoyBinary(ctx context.Context, o Options) []Finding {
	const what = "Envoy"
	version, err := envoy.Version(ctx, o.Config.Envoy.Path)
	if err != nil {
		return one(Fail, what, "", "%v", err)
	}
	return one(OK, what, "", "%s is %s", o.Config.Envoy.Path, version)
}

func envoyLives(ctx context.Context, o Options) []Finding {
	const what = "agent"
	switch {
	case !o.Running:
		return one(Warn, what, "start it: systemctl start portolan-agent, or portolan-agent run", "it does not run")
	case !envoy.Live(ctx, o.Config.Envoy.Admin):
		return one(Fail, what, "portolan-agent status has its last words, and the agent's log the others", "it runs, and its Envoy takes no connections")
	}
	return one(OK, what, "", "it runs, and its Envoy takes connections")
}

// traffic tells why the machine is not ready for traffic.
func traffic(_ context.Context, o Options) (out []Finding) {
	for _, why := range o.Faults {
		out = append(out, one(Fail, "traffic", "portolan-agent status says more, and the agent's log", "%s", strings.Join(strings.Fields(why), " "))...)
	}
	return out
}

// ports looks whether others have the ports, unless the agent itself has them.
func ports(_ context.Context, o Options) (out []Finding) {
	if o.Running {
		return nil
	}
	look := func(address, field string) {
		l, err := net.Listen("tcp", address)
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			out = append(out, one(Fail, "port", "end what listens there, or give "+field+" another address", "%s: %v", address, err)...)
			return
		}
		out = append(out, one(OK, "port", "", "%s is free for %s", address, field)...)
	}
	look(o.Config.Envoy.Admin, "envoy.admin")
	if o.Config.Metrics != config.Off {
		look(o.Config.Metrics, "metrics")
	}
	if o.Config.Capture != nil {
		look(net.JoinHostPort("127.0.0.1", strconv.Itoa(capture.DefaultOutboundPort)), "the Envoy's outbound listener")
		look(net.JoinHostPort("127.0.0.1", strconv.Itoa(capture.DefaultInboundPort)), "the Envoy's inbound listener")
	}
	return out
}

// fewBytes is how much a large mesh needs for the certificate and the last good configuration.
const fewBytes = 64 << 20

func disk(_ context.Context, o Options) []Finding {
	const what = "disk"
	var has syscall.Statfs_t
	if err := syscall.Statfs(o.Config.State, &has); err != nil {
		return one(Fail, what, "make the directory, or join the machine", "%s: %v", o.Config.State, err)
	}
	const readOnly = 1
	free := int64(has.Bavail) * int64(has.Bsize)
	if name := stranger(o.Config); name != "" {
		return one(Fail, what, "chown it: the agent can neither renew its certificate nor keep its last good configuration there", "%s is of another user than %s", name, o.Config.State)
	}
	switch {
	case has.Flags&readOnly != 0:
		return one(Fail, what, "mount it for writing: no certificate is renewed, and no last good configuration kept", "%s is read-only", o.Config.State)
	case free < fewBytes:
		return one(Warn, what, "free some: the certificate and the last good configuration are written there", "%s has %d MiB free", o.Config.State, free>>20)
	}
	return one(OK, what, "", "%s has %d MiB free", o.Config.State, free>>20)
}

// stranger returns a file of the state directory that is of another user; empty for none.
func stranger(c config.Config) (found string) {
	uid, _ := c.Owner()
	_ = filepath.WalkDir(c.State, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := entry.Info(); err == nil && int(info.Sys().(*syscall.Stat_t).Uid) != uid {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// captured looks at the packet filter: whether it takes the rules, has them, and whether others
// redirect too.
func captured(ctx context.Context, o Options) []Finding {
	const what = "capture"
	if o.Config.Capture == nil {
		return one(OK, what, "", "the file captures no traffic")
	}
	if uid, _ := o.Config.Owner(); uid == 0 {
		return one(Fail, what, "give "+o.Config.State+" and the file to a user of its own, and run the agent as that user with the capability NET_ADMIN, as its unit does", "the state directory is root's, and an agent of root captures nothing")
	}
	rules := o.Config.Rules()
	if err := o.Firewall.Try(ctx, rules); err != nil {
		do := "run this as root"
		if errors.Is(err, capture.ErrRules) {
			do = "install nftables and iproute2, and a kernel with nf_tables, nft_redir, nft_fib and nft_tproxy"
		}
		return one(Fail, what, do, "%v", err)
	}
	state, err := o.Firewall.Check(ctx, rules)
	switch {
	case err != nil:
		return one(Fail, what, "run this as root", "%v", err)
	case state != capture.InForce && o.Running && o.Config.Capture.WhenDown == capture.Refuse:
		return one(Fail, what, "the agent mends them within seconds: see its log", "the rules are %s", state)
	case state == capture.InForce && !o.Running:
		return one(Warn, what, "start the agent, or let all pass: portolan-agent capture remove", "the rules are in force, and captured connections are refused while no Envoy runs")
	}
	out := one(OK, what, "", "the rules are %s", state)
	if passing := o.Config.Uncaptured(); len(passing) > 0 {
		out = append(out, one(Warn, what, "name the interface in proxy.ips of the file (join --ip), or say there that only one family is to be captured (capture: {ipv4: true}); then start the agent again",
			"the mesh does not know %s: connections of that family pass by the sidecar", strings.Join(passing, ", "))...)
	}
	for _, other := range o.Firewall.Others(ctx) {
		out = append(out, one(Warn, what, "if it redirects traffic of the mesh, take it away: iptables rules of Istio, or another agent", "the table %s redirects connections too", other)...)
	}
	return out
}
