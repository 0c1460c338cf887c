package access

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
	"github.com/portolan-mesh/portolan/xds/generate/secret"
)

// bootstrapFlags holds the flags of bootstrap that must be checked or converted into options.
type bootstrapFlags struct {
	kind, interception     string
	delta, stateOfTheWorld bool
	// foreign lists the given flags that only make sense for an Envoy.
	foreign []string
	// out is the directory for the files; empty prints the bootstrap.
	out string
	// asks says to ask the server for the ProxyConfig of the workload.
	asks bool
}

func newBootstrapCommand(env *environment) *cobra.Command {
	var flags bootstrapFlags
	var o bootstrap.Options
	c := &cobra.Command{
		Use:   "bootstrap --name NAME --ip ADDRESS",
		Short: "Print the configuration that an Envoy or a gRPC client starts with",
		Long: `Print the configuration that an Envoy starts with: who it is, and where the
control plane is that tells it everything else. The server is not asked, unless
--proxy-config says so: then what ProxyConfigs, the annotation of the
WorkloadGroup, defaultConfig of the mesh and EnvoyFilters (applyTo BOOTSTRAP) say
of the workload's proxy is in the bootstrap, and on standard error what they say
of Envoy's command line, and what of the bootstrap is better looked at first.

With --type grpc it is for a program that needs no Envoy, since its gRPC library
asks the control plane itself: put it into a file, name that in the variable
GRPC_XDS_BOOTSTRAP, and call services as xds:///HOST:PORT.`,
		Example: `  portolan bootstrap --name vm-12 --ip 10.0.0.12 -n shop --labels app=reviews > envoy.yaml
  portolan bootstrap --type gateway --name edge-1 --ip 10.0.0.2 --labels istio=ingress > edge.yaml
  portolan bootstrap --name vm-12 --ip 10.0.0.12 --cert /etc/mesh/cert.pem --key /etc/mesh/key.pem --ca /etc/mesh/ca.pem
  portolan bootstrap --name vm-12 --ip 10.0.0.12 -n shop --labels app=reviews --proxy-config > envoy.yaml
  envoy -c envoy.yaml
  portolan bootstrap --name vm-12 --ip 10.0.0.12 --tls --cert /etc/mesh/cert.pem --key /etc/mesh/key.pem --ca /etc/mesh/ca.pem \
      --xds-address mesh.example.com:15012 --out /etc/envoy && envoy -c /etc/envoy/envoy.yaml
  portolan bootstrap --type grpc --name vm-12 --ip 10.0.0.12 -n shop > grpc.json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			flags.foreign = changed(c.Flags(), "interception", "dns-capture", "self-discovery", "http-proxy-port", "delta", "state-of-the-world", "admin-address", "out", "xds-name", "sds-socket", "proxy-config")
			return printBootstrap(c.Context(), env, flags, o, c.Flags().Changed("delta"))
		},
	}
	f := c.Flags()
	f.StringVar(&flags.kind, "type", "sidecar", "role of the proxy: sidecar, or gateway (Istio's router); grpc is for a program without a proxy")
	f.StringVar(&o.Name, "name", "", "name of the workload, unique in its namespace")
	f.StringVarP(&o.Namespace, "namespace", "n", env.Namespace, "namespace of the workload, and of its configuration; the default is $PORTOLAN_NAMESPACE where it is set")
	f.StringSliceVar(&o.IPs, "ip", nil, "address by which the mesh knows the workload; may be repeated")
	f.StringToStringVar((*map[string]string)(&o.Labels), "labels", nil, "labels of the workload, KEY=VALUE,...: what selectors see unless a WorkloadEntry has its address")
	f.StringVar(&flags.interception, "interception", "", "how traffic gets to a sidecar: NONE, to listeners on 127.0.0.1; REDIRECT or TPROXY, by rules of the machine that send what goes out to port 15001 and what comes in to 15006 (default NONE)")
	f.BoolVar(&o.DNSCapture, "dns-capture", false, "listen on the addresses that services without one were given, too: for machines on which their names resolve to these, and these are local")
	f.BoolVar(&o.SelfDiscovery, "self-discovery", false, "know the endpoints of the workload's own service, for rules with zoneAwareLbSetting; needs --locality")
	f.Uint16Var(&o.HTTPProxyPort, "http-proxy-port", 0, "port of the loopback address on which a sidecar is an HTTP proxy (default that of the mesh configuration, if any)")
	f.StringVar(&o.Certificate.Chain, "cert", "", "file of the proxy's machine with its own certificate and the chain of that, which it shows for mutual TLS of the mesh; the proxy reads it, and again when it is replaced")
	f.StringVar(&o.Certificate.Key, "key", "", "file with the key of --cert")
	f.StringVar(&o.Certificate.Roots, "ca", "", "file with the authorities that the proxy trusts there")
	f.StringVar(&o.SystemRoots, "system-roots", "", "file of the proxy's machine with the authorities that it trusts, for rules that originate TLS and name none (default "+secret.SystemRoots+", as on Debian, Ubuntu and Alpine)")
	f.BoolVar(&flags.delta, "delta", true, "ask for changes only (delta xDS)")
	f.BoolVar(&flags.stateOfTheWorld, "state-of-the-world", false, "ask for all resources of a type at each change, instead of --delta")
	f.StringSliceVar(&o.XDSAddresses, "xds-address", []string{bootstrap.DefaultXDSAddress}, "host:port where a server of the control plane serves xDS; may be repeated: the proxy uses one that answers")
	f.BoolVar(&o.TLS, "tls", false, "connect to the server over TLS (serve --secure-xds-address), with the certificate of --cert; an Envoy needs --out")
	f.StringVar(&o.ServerRoots, "xds-ca", "", "file of the proxy's machine with the authorities that sign the certificates of servers (default that of --ca)")
	f.StringVar(&o.ServerName, "xds-name", "", "name, address or URI that a server has in its certificate (default the host of an --xds-address)")
	f.StringVar(&o.SDSSocket, "sds-socket", "", "Unix socket of the proxy's machine on which an agent serves the proxy's certificate and the roots of the mesh over SDS, in the place of --cert, --key and --ca")
	f.StringVar(&flags.out, "out", "", "directory of the proxy's machine into which envoy.yaml is written, and beside it the files that make Envoy read certificates again when they are replaced; it stays there")
	f.BoolVar(&flags.asks, "proxy-config", false, "ask the server what ProxyConfigs, the mesh and EnvoyFilters say of the proxy, and put it into the bootstrap")
	f.StringVar(&o.AdminAddress, "admin-address", bootstrap.DefaultAdminAddress, `host:port of Envoy's own interface, which can stop the proxy; "off" for none`)
	f.StringVar(&o.Cluster, "cluster", "", "service that the proxy counts as in statistics (default NAME.NAMESPACE)")
	f.StringVar(&o.ClusterID, "cluster-id", "", "cluster of Kubernetes that the proxy belongs to, by its name in serve --services-kube: the proxy calls Services at the addresses that they have there")
	f.StringVar(&o.Locality, "locality", "", "where the proxy runs: region/zone/subzone")
	f.StringVar(&o.ServiceAccount, "service-account", "", "service account of the workload")
	f.StringVar(&o.WorkloadGroup, "workload-group", "", "WorkloadGroup of the namespace: while the proxy is connected, the server keeps a WorkloadEntry of that group for it")
	return c
}

func printBootstrap(ctx context.Context, env *environment, flags bootstrapFlags, o bootstrap.Options, deltaGiven bool) error {
	faults := flags.complete(&o, deltaGiven)
	if flags.out != "" {
		out, err := filepath.Abs(flags.out)
		if err != nil {
			return exit.With(exit.Data, fmt.Errorf("--out: %w", err))
		}
		o.TLSDir = out
		for _, file := range []*string{&o.Certificate.Chain, &o.Certificate.Key, &o.Certificate.Roots, &o.ServerRoots} {
			if *file == "" {
				continue
			}
			if *file, err = filepath.Abs(*file); err != nil { // --out is on this machine, so the files are, too
				return exit.With(exit.Data, err)
			}
		}
	}
	var patches *structpb.Struct
	if flags.asks && faults == nil {
		var err error
		if o.Config, err = env.proxyConfig(ctx, o); err != nil {
			return err
		}
		if patches, err = env.bootstrapPatches(ctx, o); err != nil {
			return err
		}
	}
	text, err := render(o, patches)
	for _, fault := range config.Faults(err) {
		faults = multierror.Append(faults, byFlag(fault))
	}
	if err := faults.ErrorOrNil(); err != nil {
		return exit.With(exit.Usage, err)
	}
	if flags.out != "" {
		return writeBootstrap(env, o, text)
	}
	if o.Type == discovery.Proxyless && len(o.XDSAddresses) > 1 {
		env.Warn([]string{"a program in Go that was at the second --xds-address may miss changes once the first is back: give it one name that leads to all servers"})
	}
	if flags.asks {
		env.Warn([]string{"start the proxy with " + commandLine(o, "envoy.yaml")})
	}
	_, err = env.Stdout.Write(text)
	return err
}

// proxyConfig asks the server what the mesh says of a proxy.
func (e *environment) proxyConfig(ctx context.Context, o bootstrap.Options) (*meshv1alpha1.ProxyConfig, error) {
	got, err := e.proxySettings(ctx, o, url.Values{})
	if err != nil {
		return nil, err
	}
	return got.ProxyConfig()
}

// bootstrapPatches asks the server what EnvoyFilters say of a proxy's bootstrap, nil for nothing. They
// may ask for what the ProxyConfig says of the proxy, which the options have by then.
func (e *environment) bootstrapPatches(ctx context.Context, o bootstrap.Options) (*structpb.Struct, error) {
	message, err := bootstrap.Build(o)
	if err != nil {
		return nil, nil // whoever renders it says so
	}
	node, err := protojson.Marshal(message.GetNode())
	if err != nil {
		return nil, err
	}
	got, err := e.proxySettings(ctx, o, url.Values{"node": {string(node)}})
	if err != nil {
		return nil, err
	}
	patches, err := got.BootstrapPatches()
	if err != nil {
		return nil, err
	}
	warnings := got.Unapplied
	if _, guarded := bootstrap.Guard(patches); len(guarded) > 0 {
		warnings = append(warnings, "EnvoyFilters say who the proxy is, whom it trusts, who may command it or which code it loads: look at "+strings.Join(guarded, ", ")+" before the proxy starts")
	}
	e.Warn(warnings)
	return patches, nil
}

func (e *environment) proxySettings(ctx context.Context, o bootstrap.Options, query url.Values) (admin.ProxySettings, error) {
	var got admin.ProxySettings
	query.Set("namespace", o.Namespace)
	query.Set("labels", o.Labels.String())
	query.Set("group", o.WorkloadGroup)
	err := e.Call(ctx, func(ctx context.Context, c *client.Client) error {
		return c.JSON(ctx, admin.ProxySettingsPath+"?"+query.Encode(), &got)
	})
	return got, err
}

// commandLine is the command that starts the proxy with a bootstrap, as the mesh says.
func commandLine(o bootstrap.Options, file string) string {
	words := []string{"envoy", "-c", file}
	if variables := bootstrap.Environment(o.Config); len(variables) > 0 {
		words = slices.Concat([]string{"env"}, variables, words)
	}
	return strings.Join(slices.Concat(words, bootstrap.Arguments(o.Config, nil), bootstrap.DrainArguments(o.Config)), " ")
}

// writeBootstrap writes the bootstrap of an Envoy, and the files that it refers to.
func writeBootstrap(env *environment, o bootstrap.Options, text []byte) error {
	files, err := bootstrap.TLSFiles(o)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.TLSDir, 0o755); err != nil {
		return exit.With(exit.Data, fmt.Errorf("--out: %w", err))
	}
	file := filepath.Join(o.TLSDir, "envoy.yaml")
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(o.TLSDir, name), content, 0o644); err != nil {
			return exit.With(exit.Data, fmt.Errorf("--out: %w", err))
		}
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return exit.With(exit.Data, fmt.Errorf("--out: %w", err))
	}
	fmt.Fprintf(env.Stderr, "Start the proxy with %s.\n", commandLine(o, file))
	return nil
}

// byFlag replaces the option at the start of a fault by its flag.
func byFlag(fault error) error {
	for option, flag := range map[string]string{
		"ip": "--ip", "name": "--name", "namespace": "--namespace", "interception mode": "--interception", "locality": "--locality", "self discovery": "--self-discovery",
		"out": "--out", "xds ca": "--xds-ca", "tls": "--tls", "xds address": "--xds-address", "admin address": "--admin-address", "cert": "--cert", "sds socket": "--sds-socket", "key": "--key", "ca": "--ca",
	} {
		if rest, ok := strings.CutPrefix(fault.Error(), option); ok && (rest[0] == ':' || rest[0] == ' ') {
			return errors.New(flag + rest)
		}
	}
	return fault
}

// render returns the bootstrap for a proxy of the options' type, with patches for that of an Envoy.
func render(o bootstrap.Options, patches *structpb.Struct) ([]byte, error) {
	if o.Type == discovery.Proxyless {
		return bootstrap.GRPC(o)
	}
	message, err := bootstrap.Build(o)
	if err != nil {
		return nil, err
	}
	return bootstrap.PatchedYAML(message, patches)
}

// changed returns those of the named flags that were given, in order.
func changed(flags *pflag.FlagSet, names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !flags.Changed(name) })
}

// For a faulty flag complete sets a valid value, so that the fault is reported once.
func (f bootstrapFlags) complete(o *bootstrap.Options, deltaGiven bool) *multierror.Error {
	var faults *multierror.Error
	switch f.kind {
	case "gateway", "router":
		o.Type = discovery.Router
	case "sidecar":
		o.Type = discovery.Sidecar
	case "grpc":
		o.Type = discovery.Proxyless
		for _, name := range f.foreign {
			faults = multierror.Append(faults, fmt.Errorf("--%s is about an Envoy: leave it out with --type grpc", name))
		}
		return faults
	default:
		o.Type = discovery.Sidecar
		faults = multierror.Append(faults, fmt.Errorf("--type %q: use sidecar, gateway or grpc", f.kind))
	}
	switch mode := discovery.InterceptionMode(strings.ToUpper(f.interception)); {
	case mode == discovery.InterceptionNone && o.Type == discovery.Router: // a gateway never intercepts
	default:
		o.InterceptionMode = mode
	}
	o.StateOfTheWorld = f.stateOfTheWorld || !f.delta
	if f.stateOfTheWorld && f.delta && deltaGiven {
		faults = multierror.Append(faults, errors.New("--delta and --state-of-the-world exclude each other: leave one of them out"))
	}
	return faults
}
