package command

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
)

// serveFlags holds the flags of serve, which become serve.Options.
type serveFlags struct {
	settings   settingsFile
	xdsAddress string
	apiAddress string
	apiSocket  string
	meshConfig string
	sealingKey string
	authority  authorityFlags
	embedded   embeddedStore
	external   externalStore
	consul     consulRegistry
	kube       kubeServices
	endpoints  endpointFiles
	sources    sourceFlags
	backup     backupFlags
	addresses  addressFlags
	xds        xdsFlags
	memory     memoryFlags
	log        logFlags
	lifecycle  lifecycleFlags
	tls        tlsFlags
	statuses   bool
	profiles   bool
	unserved   bool
	newStore   bool
	anonymous  bool
	told       []maintenance.Setting // what administrators get of the flags
}

// Console is what the command gets from the command line.
type Console struct {
	Stderr io.Writer
	// Version is that of the binary.
	Version string
	// Bearer returns the token of the user. CA is the file of the authorities of a server's
	// certificate, and Agent what the command calls itself at other servers. They are called
	// when the command runs.
	Bearer func() (string, error)
	CA     func() string
	Agent  func() string
}

// New returns the command that runs a server.
func New(console Console) *cobra.Command {
	var o serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the control plane",
		Long: `Run the control plane: the config API, the store, and xDS for proxies.

The store is an etcd that runs embedded, in a process of its own, with its data
in --data-dir; --etcd-endpoints uses an etcd cluster instead, which is waited
for while it is away.

--xds-address serves this machine. Proxies of other machines connect to
--secure-xds-address, over TLS with certificates of their own. --api-address serves
other machines over TLS; clients of this machine may do without.

One line is logged when the server is ready; /readyz of the config API answers
200 from then on. While the store is away it still does and says why: proxies are
served from memory, writes fail, and the store is started again by itself.

--config takes settings from a file, in which each of these flags is a field, and
--print-config prints such a file. Flags on the command line go before the file, and
both before environment variables.

SIGTERM ends the server and its store, within 10 seconds in any state, with exit
code 0; it is 1 where the server could not start or had to end. Where other
servers share the store, proxies are sent there before that, over --drain-time.
A second signal ends the server at once.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var printed bytes.Buffer
			if err := o.load(o.settings.fields(c), c.Flags().Changed, &printed); err != nil {
				return err
			}
			if o.settings.print {
				_, err := c.OutOrStdout().Write(printed.Bytes())
				return err
			}
			o.told = settingsOf(c.LocalFlags())
			return runServer(c.Context(), &o, console)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	help.Under(f, "Settings in a file", func() { o.settings.register(f) })
	help.Under(f, "Where it listens", func() {
		f.StringVar(&o.xdsAddress, "xds-address", "127.0.0.1:15010", "where proxies of this machine connect (gRPC); port 0 picks a free one")
		f.StringVar(&o.apiAddress, "api-address", "127.0.0.1:15080", "where the config API listens: HTTP for this machine, HTTPS for others; port 0 picks a free one")
		f.StringVar(&o.apiSocket, "api-socket", "", "unix socket on which the config API listens too, for this user alone; snapshots of the store, and changes of it as such, are answered only there (default api.sock in --data-dir, and none with --etcd-endpoints)")
		o.tls.register(f)
	})
	help.Under(f, "The store", func() {
		o.embedded.register(f)
		f.BoolVar(&o.newStore, "new-store", false, "begin a new store: say it once, for the first server of a new mesh. A server that other machines can reach begins none without it; one for this machine alone does, unless its data directory had a store. The marks of a store that is gone outrank the flag")
		o.backup.register(f)
	})
	help.Under(f, "A store of several members", func() { o.embedded.cluster.register(f) })
	help.Under(f, "An etcd of your own", func() { o.external.register(f) })
	help.Under(f, "Secrets, certificates and access", func() {
		f.StringVar(&o.sealingKey, "sealing-key", "", "file with the keys that seal secrets in the store, for this user alone; made when the first secret of the store comes (default sealing.key in --data-dir, and none with --etcd-endpoints: secrets are refused)")
		o.authority.register(f)
		f.BoolVar(&o.anonymous, "anonymous-loopback", false, "let in whoever calls the config API from this machine as its administrator, also when there are users; without it only until the first user exists")
		f.BoolVar(&o.unserved, "accept-unserved", false, "store security that is not served yet (serviceEntryVisibility of a MeshConfig), without effect, as for a migration; refused otherwise")
	})
	help.Under(f, "The mesh", func() {
		f.StringVar(&o.meshConfig, "mesh-config", "", "file with a MeshConfig in YAML, under the object of that kind; Istio's defaults without one")
		o.addresses.register(f)
		f.BoolVar(&o.statuses, "object-status", true, "write into the status of objects how far they have come, as conditions; each such write is a new resourceVersion of the object. All servers of a store should agree")
	})
	help.Under(f, "Configuration from elsewhere", func() { o.sources.register(f) })
	help.Under(f, "Services from elsewhere", func() {
		o.consul.register(f)
		o.kube.register(f)
		o.endpoints.register(f)
	})
	help.Under(f, "Proxies", func() { o.xds.register(f) })
	help.Under(f, "Limits", func() {
		o.memory.register(f)
		o.lifecycle.registerLimits(f)
		o.tls.registerLimits(f)
	})
	help.Under(f, "How long proxies and machines stay", func() { o.lifecycle.register(f) })
	help.Under(f, "Log and profiles", func() {
		o.log.register(f)
		f.BoolVar(&o.profiles, "pprof", false, "show profiles of the server at "+serve.ProfilesPath+" of the config API, for go tool pprof")
	})
	_ = c.MarkFlagDirname("data-dir")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	_ = c.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]cobra.Completion{textLog, jsonLog}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.MarkFlagFilename("mesh-config", "yaml", "yml")
	_ = c.MarkFlagFilename("endpoints-file", "json", "yaml", "yml")
	return c
}

type addFault func(flag, format string, args ...any)

// validate reports all faults of the flags.
func (o *serveFlags) validate(given func(flag string) bool, add addFault) {
	o.tls.validate(o.apiAddress, o.xdsAddress, add)
	if len(o.external.endpoints) > 0 {
		o.embedded.exclude(given, add)
		o.external.validate(add)
	} else {
		o.external.exclude(given, add)
	}
	o.embedded.validate(given, add)
	o.authority.validate(add)
	o.backup.validate(given, add)
	o.addresses.validate(add)
	o.lifecycle.validate(add)
	o.xds.validate(add)
	o.memory.validate(add)
	o.consul.validate(given, add)
	o.kube.validate(add)
	o.endpoints.validate(given, add)
	o.sources.validate(add)
	if o.sources.writeStatus && !o.statuses {
		add("write-status", "needs --object-status, which makes the conditions")
	}
	if o.newStore && len(o.external.endpoints) == 0 && hasStore(o.embedded.dataDir) {
		add("new-store", "%s has a store: leave the flag out", o.embedded.dataDir)
	}
	o.log.validate(add)
}

// founding says whether the server may begin a new store. One that others can reach begins
// none unasked: an empty directory there is a volume that is not mounted, a restore that
// went elsewhere, or a second server that was meant to join.
func (o *serveFlags) founding() member.Founding {
	addresses := []string{o.apiAddress, o.xdsAddress, o.tls.secureXDS}
	reachable := func(address string) bool {
		host, _, err := net.SplitHostPort(address)
		return err == nil && !isLoopback(host)
	}
	switch {
	case o.newStore:
		return member.FoundAsked
	case o.embedded.cluster.peerURL != "" || slices.ContainsFunc(addresses, reachable):
		return member.FoundNever
	}
	return member.FoundFresh
}

func onThisMachine(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "unix" || u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// runServer runs a server with valid flags until ctx ends.
func runServer(ctx context.Context, o *serveFlags, console Console) error {
	logger, levels := o.log.logger(console.Stderr)
	if err := o.joinStore(ctx, console, logger); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	options, err := o.options(console.Version, logger)
	if err != nil {
		return err
	}
	options.LogLevels = levels
	return serve.Run(ctx, options)
}

// joinStore makes the server join a store if --join asks for that and it has not joined yet.
func (o *serveFlags) joinStore(ctx context.Context, console Console, logger *slog.Logger) error {
	if o.embedded.cluster.joinServer == "" || o.embedded.cluster.place != nil {
		return nil
	}
	j := &storeJoin{
		server: o.embedded.cluster.joinServer, dataDir: o.embedded.dataDir,
		sealingKey: cmp.Or(o.sealingKey, filepath.Join(o.embedded.dataDir, serve.SealingFile)),
		token:      console.Bearer, ca: console.CA(), agent: console.Agent(), logger: logger.With(loglevel.Store.Attr()),
	}
	if err := j.join(ctx); err != nil {
		return err
	}
	return o.embedded.cluster.adopt(o.embedded.dataDir)
}

// options converts valid flags.
func (o *serveFlags) options(version string, logger *slog.Logger) (serve.Options, error) {
	options := serve.Options{
		Version: version, APIAddress: o.apiAddress, XDSAddress: o.xdsAddress, APISocket: o.apiSocket, SealingKey: o.sealingKey,
		ObjectStatus: o.statuses, Profiles: o.profiles, AcceptUnserved: o.unserved, AnonymousLoopback: o.anonymous, TrustLoopbackProxies: o.tls.trustLoopback, XDSSocket: o.tls.xdsSocket,
		Founding: o.founding(), Settings: o.told, Logger: logger,
	}
	var err error
	if options.Mesh, err = readMeshConfig(o.meshConfig, options.Logger); err != nil {
		return options, err
	}
	if len(o.external.endpoints) > 0 {
		options.Etcd = o.external.etcd(options.Logger)
	} else {
		options.Embedded = o.embedded.embedded(o.log.storeRunArgs())
	}
	o.authority.apply(&options)
	o.backup.apply(&options)
	o.addresses.apply(&options)
	o.consul.apply(&options)
	o.kube.apply(&options)
	o.endpoints.apply(&options)
	o.sources.apply(&options)
	o.xds.apply(&options)
	options.Mesh.HTTP3, options.Mesh.HostConsent = o.xds.http3, o.xds.consent
	o.lifecycle.apply(&options)
	o.tls.apply(&options)
	o.memory.apply(&options)
	return options, nil
}
