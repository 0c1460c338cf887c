package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
)

// bootstrapFlags are those flags of bootstrap that need a word with the user
// before they are options.
type bootstrapFlags struct {
	kind, interception     string
	delta, stateOfTheWorld bool
}

func newBootstrapCommand(env *environment) *cobra.Command {
	var flags bootstrapFlags
	var o bootstrap.Options
	c := &cobra.Command{
		Use:   "bootstrap --name NAME --ip ADDRESS",
		Short: "Print the configuration that an Envoy starts with",
		Long: `Print the configuration that an Envoy starts with: who it is, and where the
control plane is that tells it everything else. The server is not asked.`,
		Example: `  portolan bootstrap --name vm-12 --ip 10.0.0.12 -n shop --labels app=reviews > envoy.yaml
  portolan bootstrap --type gateway --name edge-1 --ip 10.0.0.2 --labels istio=ingress > edge.yaml
  envoy -c envoy.yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return printBootstrap(env, flags, o, c.Flags().Changed("delta"))
		},
	}
	f := c.Flags()
	f.StringVar(&flags.kind, "type", "sidecar", "what the proxy is for: sidecar, or gateway (Istio's router)")
	f.StringVar(&o.Name, "name", "", "name of the workload, unique in its namespace")
	f.StringVarP(&o.Namespace, "namespace", "n", defaultNamespace, "namespace of the workload, and of its configuration")
	f.StringSliceVar(&o.IPs, "ip", nil, "address by which the mesh knows the workload; may be repeated")
	f.StringToStringVar((*map[string]string)(&o.Labels), "labels", nil, "labels of the workload, KEY=VALUE,...: what selectors see unless a WorkloadEntry has its address")
	f.StringVar(&flags.interception, "interception", "", "how traffic gets to a sidecar: NONE, to listeners on 127.0.0.1 (default NONE)")
	f.BoolVar(&o.DNSCapture, "dns-capture", false, "listen on the addresses that services without one were given, too: for machines on which their names resolve to these, and these are local")
	f.BoolVar(&flags.delta, "delta", true, "ask for changes only (delta xDS)")
	f.BoolVar(&flags.stateOfTheWorld, "state-of-the-world", false, "ask for all resources of a type at each change, instead of --delta")
	f.StringVar(&o.XDSAddress, "xds-address", bootstrap.DefaultXDSAddress, "host:port where the control plane serves xDS")
	f.StringVar(&o.AdminAddress, "admin-address", bootstrap.DefaultAdminAddress, `host:port of Envoy's own interface, which can stop the proxy; "off" for none`)
	f.StringVar(&o.Cluster, "cluster", "", "service that the proxy counts as in statistics (default NAME.NAMESPACE)")
	f.StringVar(&o.Locality, "locality", "", "where the proxy runs: region/zone/subzone")
	f.StringVar(&o.ServiceAccount, "service-account", "", "service account of the workload")
	return c
}

func printBootstrap(env *environment, flags bootstrapFlags, o bootstrap.Options, deltaGiven bool) error {
	faults := flags.complete(&o, deltaGiven)
	message, err := bootstrap.Build(o)
	if err != nil {
		faults = multierror.Append(faults, err)
	}
	if err := faults.ErrorOrNil(); err != nil {
		return usageError{err}
	}
	text, err := bootstrap.YAML(message)
	if err != nil {
		return err
	}
	_, err = env.stdout.Write(text)
	return err
}

// complete sets the options that the flags stand for. An option whose flag is
// at fault is set to what it may be, so that the fault is reported once.
func (f bootstrapFlags) complete(o *bootstrap.Options, deltaGiven bool) *multierror.Error {
	var faults *multierror.Error
	switch f.kind {
	case "gateway", "router":
		o.Type = discovery.Router
	case "sidecar":
		o.Type = discovery.Sidecar
	default:
		o.Type = discovery.Sidecar
		faults = multierror.Append(faults, fmt.Errorf("--type %q: use sidecar or gateway", f.kind))
	}
	switch mode := discovery.InterceptionMode(strings.ToUpper(f.interception)); {
	case mode == discovery.InterceptionRedirect, mode == discovery.InterceptionTproxy:
		faults = multierror.Append(faults, fmt.Errorf("--interception %s: is not served yet: use NONE", mode))
	case mode == discovery.InterceptionNone && o.Type == discovery.Router: // as there is none
	default:
		o.InterceptionMode = mode
	}
	o.StateOfTheWorld = f.stateOfTheWorld || !f.delta
	if f.stateOfTheWorld && f.delta && deltaGiven {
		faults = multierror.Append(faults, errors.New("--delta and --state-of-the-world exclude each other: leave one of them out"))
	}
	return faults
}
