package command

import (
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// consulToken is the variable that has the token if there is no file. Consul's own tools use
// the same.
const consulToken = "CONSUL_HTTP_TOKEN"

type consulRegistry struct {
	address        string
	tokenFile      string
	files          dial.Files
	datacenters    []string
	domain         string
	namespace      string
	maxQueries     int
	warningHealthy bool
	resetHold      time.Duration
}

func (o *consulRegistry) register(f *pflag.FlagSet) {
	f.StringVar(&o.address, "consul-address", "", "http://HOST:PORT or https://HOST:PORT of a Consul agent, whose services are taken into the mesh")
	f.StringVar(&o.tokenFile, "consul-token-file", "", "file with the ACL token for Consul, read again at every request; without it $"+consulToken+" has the token")
	f.StringVar(&o.files.CA, "consul-ca", "", "file with the authorities that sign the certificates of Consul, in PEM; default: the authorities of the system")
	f.StringVar(&o.files.Cert, "consul-cert", "", "file with this server's certificate for Consul; read again at every connection")
	f.StringVar(&o.files.Key, "consul-key", "", "file with the key of --consul-cert")
	f.StringVar(&o.files.ServerName, "consul-server-name", "", "the name in the certificates of Consul, where it is not the host of --consul-address")
	f.StringSliceVar(&o.datacenters, "consul-datacenters", nil, "the datacentres whose services are read; default: the datacentre of the agent")
	f.StringVar(&o.domain, "consul-domain", consul.DefaultDomain, "what follows the name of a service in its host name")
	f.StringVar(&o.namespace, "consul-namespace", consul.DefaultNamespace, "the namespace that services of Consul are in")
	f.IntVar(&o.maxQueries, "consul-max-queries", 0, fmt.Sprintf("how many queries may wait in Consul at a time; 0 is %d, or %d with https", consul.DefaultMaxQueries, consul.DefaultMaxQueriesTLS))
	f.BoolVar(&o.warningHealthy, "consul-warning-healthy", true, "send traffic to instances whose checks are warning, by their weight for that")
	f.DurationVar(&o.resetHold, "consul-reset-hold", consul.DefaultResetHold, "how long to keep services that a Consul has lost with its data, and how long a starting server waits for a Consul of which nothing is known")
}

// exclude reports the flags that were given although Consul is not used.
func (o *consulRegistry) exclude(given func(flag string) bool, add addFault) {
	for _, flag := range []string{
		"consul-token-file", "consul-ca", "consul-cert", "consul-key", "consul-server-name", "consul-datacenters",
		"consul-domain", "consul-namespace", "consul-max-queries", "consul-warning-healthy", "consul-reset-hold",
	} {
		if given(flag) {
			add(flag, "is of no use without --consul-address")
		}
	}
}

func (o *consulRegistry) validate(given func(flag string) bool, add addFault) {
	if o.address == "" {
		o.exclude(given, add)
		return
	}
	if !o.secure() && o.files != (dial.Files{}) {
		add("consul-address", "is of plaintext, which has no use for --consul-ca, --consul-cert, --consul-key and --consul-server-name: use https://")
	}
	if (o.files.Cert == "") != (o.files.Key == "") {
		add("consul-cert", "goes with --consul-key: give both or none")
	} else if _, err := o.files.Config(); err != nil {
		add("consul-ca, --consul-cert, --consul-key", "%v", err)
	}
	if token, err := o.token(); err != nil {
		add("consul-token-file", "%v", err)
	} else if token != "" && !o.secure() && !onThisMachine(o.address) {
		add("consul-address", "the token would go to %s in plaintext: use https://", o.address)
	}
	if o.resetHold <= 0 {
		add("consul-reset-hold", "%s: give a time above 0", o.resetHold)
	}
	if err := o.options().Validate(); err != nil {
		add("consul-address", "%v", err)
	}
}

func (o *consulRegistry) secure() bool { return strings.HasPrefix(o.address, "https://") }

// token reads the current token.
func (o *consulRegistry) token() (string, error) {
	if o.tokenFile == "" {
		return os.Getenv(consulToken), nil
	}
	content, err := os.ReadFile(o.tokenFile)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return "", fmt.Errorf("%s is empty", o.tokenFile)
	}
	return token, nil
}

// apply requires valid flags.
func (o *consulRegistry) apply(to *serve.Options) {
	if o.address != "" {
		options := o.options()
		to.Consul = &options
	}
}

func (o *consulRegistry) options() consul.Options {
	return consul.Options{
		Address: o.address, TLS: func() (*tls.Config, error) { return o.files.Config() }, Token: o.token,
		Datacenters: o.datacenters, Domain: o.domain, Namespace: o.namespace, MaxQueries: o.maxQueries,
		WarningUnhealthy: !o.warningHealthy, ResetHold: o.resetHold,
	}
}
