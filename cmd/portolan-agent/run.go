package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/address"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/envoy"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/health"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/nameserver"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/relay"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/secrets"
	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
	"github.com/portolan-mesh/portolan/xds/names/probe"
	"github.com/portolan-mesh/portolan/xds/resource"
)

func newRun(env *environment) *cobra.Command {
	noEnvoy := false
	var over config.Config // what flags say in the place of the file
	c := &cobra.Command{
		Use:   "run",
		Short: "Renew the certificate, relay the configuration, run the Envoy",
		Long: `Renew the certificate, relay the configuration, run the Envoy.

SIGTERM drains the Envoy and ends all. SIGHUP replaces the Envoy in place by the binary
and the bootstrap that are there then, without a lost request.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			file, err := config.Read(env.config)
			if err == nil {
				file, err = file.With(over)
			}
			if err != nil {
				return exit.With(exit.Data, err)
			}
			debug.SetGCPercent(gcPercent)
			a, err := newAgent(c.Context(), env, file, noEnvoy)
			if err != nil {
				return exit.With(exit.Data, err)
			}
			return a.run(c.Context())
		},
	}
	c.Flags().BoolVar(&noEnvoy, "no-envoy", false, "run no Envoy: the bootstraps of an Envoy and of gRPC are beside the sockets, for those who start them")
	f := c.Flags()
	f.StringSliceVar(&over.API, "api-url", nil, "URL of the config API of a server, in the place of those in the file; may be repeated")
	f.StringSliceVar(&over.XDS, "xds-address", nil, "host:port at which a server takes proxies, in the place of those in the file; may be repeated")
	f.StringSliceVar(&over.Proxy.IPs, "ip", nil, "address by which the mesh knows the workload, or a range or an interface, in the place of those in the file; may be repeated")
	f.StringVar(&over.Envoy.Path, "envoy", "", "binary of Envoy, in the place of that in the file")
	f.StringVar(&over.Envoy.Admin, "admin-address", "", "host:port of Envoy's own interface, in the place of that in the file")
	f.DurationVar(&over.Envoy.Drain.Duration, "drain", 0, "how long connections may go on when the agent ends, in the place of what the file says")
	f.DurationVar(&over.Envoy.ListenerDrain.Duration, "listener-drain", 0, "how long connections may go on that a changed configuration or another Envoy has outdated, in the place of what the file says")
	f.StringVar(&over.Metrics, "metrics-address", "", `host:port of /metrics, "off" for none, in the place of that in the file`)
	return c
}

// The agent stays small beside what the machine is for, since it allocates little: by gcPercent, and
// by giving back what it does not use, a first time once it has started.
const (
	gcPercent    = 25
	startedAfter = 5 * time.Second
	giveBack     = time.Minute
)

func staySmall(ctx context.Context) {
	for wait := startedAfter; retry.Sleep(ctx, wait) == nil; wait = giveBack {
		debug.FreeOSMemory()
	}
}

// agent is a running agent.
type agent struct {
	config config.Config
	logger *slog.Logger
	env    *environment
	// located is the configuration with the present addresses of the machine.
	located  atomic.Pointer[config.Config]
	standing *standing
	standsAs atomic.Pointer[node.Standing] // what the servers say of the registration; nil for nothing
	health   *health.Prober
	leaving  atomic.Bool // the agent was told to end
	store    *relay.Store
	relay    *relay.Relay
	secrets  *secrets.Server
	names    *nameserver.Server
	envoy    *envoy.Child    // nil for none
	capture  *capture.Keeper // nil for none
	end      func()          // ends run, as SIGTERM does
	forGood  atomic.Bool     // the machine leaves the mesh
	since    time.Time       // when the agent began
	told     factsTold
	// proxyConfig is what the mesh says of the proxy, nil for nothing. written is Envoy's bootstrap as
	// it was written last, as bytes.
	proxyConfig atomic.Pointer[meshv1alpha1.ProxyConfig]
	written     atomic.Value
	patches     patches
	adopts      chan struct{} // the mesh says something else of how the Envoy starts
}

// The bootstraps, beside the sockets that they name.
const envoyFile, grpcFile = "envoy.json", "grpc.json"

func newAgent(ctx context.Context, env *environment, c config.Config, noEnvoy bool) (*agent, error) {
	if err := mayCapture(c, noEnvoy); err != nil {
		return nil, err
	}
	a := &agent{config: c, logger: env.logger(), env: env, since: time.Now(), adopts: make(chan struct{}, 1)}
	if err := a.locate(ctx); err != nil {
		return nil, err
	}
	for _, dir := range []string{c.State, c.Run} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	var err error
	if a.secrets, err = secrets.New(c.Certificate()); err != nil {
		return nil, err
	}
	if a.store, err = relay.OpenStore(c.Kept(), c.LastGood.MaxAge.Duration, a.logger); err != nil {
		return nil, err
	}
	id, err := a.writeBootstraps()
	if err != nil {
		return nil, err
	}
	if a.standing, err = newStanding(c.Drained(), func(ctx context.Context, healthy bool, why string) { a.relay.Report(ctx, healthy, why) }); err != nil {
		return nil, err
	}
	a.health = a.newHealth(noEnvoy)
	follow := map[string]relay.Follower{
		probe.Type: a.health.Follow, resource.RegistrationType: a.followStanding,
		resource.ProxyConfigType: a.followProxyConfig, resource.BootstrapType: a.followPatches,
	}
	a.newNames(follow)
	a.relay = relay.New(relay.Options{
		Servers: relay.Servers{
			Addresses: c.XDS, Name: c.XDSName, TLS: func() (*tls.Config, error) { return enroll.Client(c.Certificate()) },
			Explain: func(err error) error { return enroll.ExplainUntrusted(c.Certificate(), err) },
		},
		Store: a.store, Patience: c.LastGood.After.Duration, Logger: a.logger, Node: id, Follow: follow,
		Single: map[string]string{
			probe.Type: probe.Name, resource.RegistrationType: resource.RegistrationName,
			resource.ProxyConfigType: resource.ProxyConfigName, resource.BootstrapType: resource.BootstrapName,
		},
	})
	if a.capture = a.newCapture(noEnvoy); noEnvoy {
		return a, nil
	}
	a.envoy, err = envoy.New(ctx, envoy.Options{
		Path: c.Envoy.Path, Bootstrap: filepath.Join(c.Run, envoyFile), Admin: c.Envoy.Admin, Dir: c.State,
		Settings: a.howToRun(), Output: env.stderr, Logger: a.logger, Failed: a.envoyFailed,
	})
	if err != nil {
		return nil, err
	}
	a.checkPatches(ctx)
	_, err = a.writeBootstraps() // with what was kept of the mesh
	return a, err
}

// writeBootstraps writes the bootstraps, and returns the id of the node in that of Envoy.
func (a *agent) writeBootstraps() (id string, err error) {
	c := a.located.Load()
	text, id, err := a.bootstrap()
	if err != nil {
		return "", err
	}
	proxyless, err := bootstrap.GRPC(c.GRPC())
	if err != nil {
		return "", err
	}
	a.written.Store(text)
	return id, errors.Join(renameio.WriteFile(filepath.Join(c.Run, envoyFile), text, 0o644),
		renameio.WriteFile(filepath.Join(c.Run, grpcFile), proxyless, 0o644))
}

// bootstrap makes the bootstrap of Envoy, and returns the id of its node.
func (a *agent) bootstrap() (text []byte, id string, err error) {
	o := a.located.Load().Bootstrap()
	o.Config = a.proxyConfig.Load()
	message, err := bootstrap.Build(o)
	if err != nil {
		return nil, "", err
	}
	merged, _ := a.patching()
	text, err = bootstrap.PatchedJSON(message, merged)
	return text, message.GetNode().GetId(), err
}

// leaveWithin bounds how long the servers are told that the machine leaves.
const leaveWithin = time.Second

// leaveGrace is how long the clients of a machine that leaves have to learn it, before its proxy
// drains.
const leaveGrace = 500 * time.Millisecond

// run runs all until ctx ends. Then the servers are told that the machine leaves, so that nobody
// sends to it any more. Envoy ends next, and then what it depends on.
func (a *agent) run(ctx context.Context) error {
	ctx, a.end = context.WithCancel(ctx)
	defer a.end()
	supply, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, failed := errgroup.WithContext(supply)
	xds := grpc.NewServer(relay.ServerOptions()...)
	a.relay.Register(xds)
	sds := grpc.NewServer(relay.ServerOptions()...)
	a.secrets.Register(sds)
	users := a.config.UserIDs()
	for path, server := range map[string]*grpc.Server{a.config.XDSSocket(): xds, a.config.SDSSocket(): sds} {
		l, err := socket.Listen(path)
		if err != nil {
			return errors.Join(err, a.stopped(end, group))
		}
		if len(users) > 0 { // who connects is checked
			if err := os.Chmod(path, 0o666); err != nil {
				return errors.Join(err, l.Close(), a.stopped(end, group))
			}
		}
		group.Go(func() error { return serveGRPC(failed, server, socket.Only(l, users...)) })
	}
	status, err := socket.Listen(a.config.StatusSocket())
	if err != nil {
		return errors.Join(err, a.stopped(end, group))
	}
	group.Go(func() error { return a.serveStatus(failed, socket.Only(status)) })
	if err := a.startNames(failed, group); err != nil {
		return errors.Join(err, a.stopped(end, group))
	}
	for _, page := range []struct {
		field, address string
		serve          func(context.Context, net.Listener) error
	}{{"metrics", a.config.Metrics, a.serveMetrics}, {"ready", a.config.Ready, a.serveReady}} {
		if page.address == config.Off {
			continue
		}
		l, err := net.Listen("tcp", page.address)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w: name another address in the file, or off", page.field, err), a.stopped(end, group))
		}
		group.Go(func() error { return page.serve(failed, l) })
	}
	notifier, err := a.newNotifier()
	if err != nil {
		return errors.Join(fmt.Errorf("the service manager: %w", err), a.stopped(end, group))
	}
	if notifier != nil {
		group.Go(func() error { notifier.run(ctx, failed); return nil })
	}
	a.standing.begin(failed)
	group.Go(func() error { a.health.Run(failed); return nil })
	group.Go(func() error { a.renew(failed); return nil })
	if rules := a.config.Proxy.IPs; !address.Fixed(rules) {
		group.Go(func() error {
			address.Follow(failed, rules, a.config.XDS[0], a.located.Load().Addresses, a.moved)
			return nil
		})
	}
	group.Go(func() error { a.keepTellingFacts(failed); return nil })
	group.Go(func() error { staySmall(failed); return nil })
	a.logger.Info("ready", "xds", a.config.XDSSocket(), "sds", a.config.SDSSocket(), "state", a.config.State)

	if a.capture != nil {
		if err := a.capture.Start(failed); err != nil {
			return errors.Join(fmt.Errorf("capture: %w: give the agent the capability NET_ADMIN, or take capture out of its file", err), a.stopped(end, group))
		}
		group.Go(func() error { a.capture.Run(failed); return nil })
	}
	running, stop := context.WithCancel(failed) // nothing runs without its supply
	defer stop()
	defer context.AfterFunc(ctx, func() {
		defer stop()
		a.leaving.Store(true)
		within, done := context.WithTimeout(failed, leaveWithin)
		defer done()
		a.relay.Leave(within)
		if a.untold() == "" {
			_ = retry.Sleep(failed, leaveGrace) // then clients do not call a proxy that drains
		}
	})()
	a.runEnvoy(running)
	return a.stopped(end, group)
}

// stopped ends the supply and waits for it.
func (a *agent) stopped(end func(), group *errgroup.Group) error {
	end()
	err := group.Wait()
	a.logger.Info("ended")
	return err
}

// runEnvoy runs the Envoy, if there is one, until ctx ends.
func (a *agent) runEnvoy(ctx context.Context) {
	if a.envoy == nil {
		<-ctx.Done()
		return
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			select {
			case <-hup:
				a.replaceAnew(ctx)
			case <-a.adopts:
				a.adopt(ctx)
			case <-ctx.Done():
				return nil
			}
		}
	})
	group.Go(func() error { return a.envoy.Run(ctx) })
	_ = group.Wait() // neither fails
}

// replaceAnew replaces the Envoy at somebody's demand. Patches that an Envoy did not take are tried again.
func (a *agent) replaceAnew(ctx context.Context) {
	a.retryPatches()
	a.checkPatches(ctx)
	a.replaceEnvoy()
}

func (a *agent) replaceEnvoy() {
	if _, err := a.writeBootstraps(); err != nil {
		a.logger.Error("the bootstrap cannot be written; Envoy is replaced with the one that is there", "err", err)
	}
	a.envoy.Configure(a.howToRun())
	a.envoy.Replace()
}

// renew keeps the certificate fresh. An agent whose certificate is not renewed any more goes on:
// its proxy serves what it can without one.
func (a *agent) renew(ctx context.Context) {
	for wait := retry.New(time.Second, time.Minute); ; {
		err := enroll.Watch(ctx, a.enrollment(""))
		switch {
		case err == nil:
			return
		case a.config.TokenFile == "":
			a.logger.Error("the certificate is not renewed any more: join the machine again (portolan-agent join)", "err", err)
			return
		}
		if err = a.enrollAnew(ctx); err == nil {
			wait.Reset()
			continue
		}
		a.logger.Error("the certificate is not renewed any more, and its token file earns no other: trying again", "file", a.config.TokenFile, "err", err)
		if wait.Wait(ctx) != nil {
			return
		}
	}
}

// enrollAnew gets a certificate by the token file.
func (a *agent) enrollAnew(ctx context.Context) error {
	token, err := os.ReadFile(a.config.TokenFile)
	if err != nil {
		return err
	}
	got, err := enroll.Request(ctx, a.enrollment(strings.TrimSpace(string(token))))
	if err == nil {
		a.logger.Info("the machine is back by its token file", "identity", got.Identity)
	}
	return err
}

// enrollment returns the options of enrollment, by the certificate or by a token.
func (a *agent) enrollment(token string) enroll.Options {
	servers := enroll.Servers{URLs: a.config.API, Dir: a.config.Certificate(), Token: token, Agent: a.env.agent()}
	return enroll.Options{Dir: a.config.Certificate(), TTL: a.config.CertificateTTL.Duration, Ask: servers.Ask, Logger: a.logger, Replaced: func(context.Context) error { return a.secrets.Reload() }}
}

// serveGRPC serves until ctx ends.
func serveGRPC(ctx context.Context, server *grpc.Server, l net.Listener) error {
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("socket %s: %w", l.Addr(), err)
	}
	server.Stop() // and wait for the streams
	return nil
}

// serveStatus serves the agent's own API until ctx ends.
func (a *agent) serveStatus(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /names/{name}", a.writeOrigin)
	mux.HandleFunc("GET /status", a.writeStatus)
	mux.HandleFunc("POST /restart-envoy", a.takeRestart)
	mux.HandleFunc("POST /reload", a.takeReload)
	mux.HandleFunc("POST /leave", a.takeLeave)
	mux.HandleFunc("POST /drain", a.takeDrain)
	mux.HandleFunc("POST /resume", a.takeResume)
	mux.HandleFunc("GET /under-way", a.writeUnderWay)
	return serveHTTP(ctx, l, &http.Server{Handler: mux})
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, l net.Listener, server *http.Server) error {
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
