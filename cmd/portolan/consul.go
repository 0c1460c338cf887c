package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// consulToken is the variable with the token where there is no file, as of
// Consul's own tools.
const consulToken = "CONSUL_HTTP_TOKEN"

// consulPath is where the status of the registry of Consul is served.
const consulPath = "/apis/portolan.io/v1/consul"

// consulRegistry are the flags of the services that come from Consul.
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
	f.StringVar(&o.files.CA, "consul-ca", "", "file with the authorities that sign the certificates of Consul, in PEM; those of the system without one")
	f.StringVar(&o.files.Cert, "consul-cert", "", "file with this server's certificate for Consul; read again at every connection")
	f.StringVar(&o.files.Key, "consul-key", "", "file with the key of --consul-cert")
	f.StringVar(&o.files.ServerName, "consul-server-name", "", "the name in the certificates of Consul, where it is not the host of --consul-address")
	f.StringSliceVar(&o.datacenters, "consul-datacenters", nil, "the datacentres whose services are taken; that of the agent without any")
	f.StringVar(&o.domain, "consul-domain", consul.DefaultDomain, "what follows the name of a service in its host name")
	f.StringVar(&o.namespace, "consul-namespace", consul.DefaultNamespace, "the namespace that services of Consul are in")
	f.IntVar(&o.maxQueries, "consul-max-queries", 0, fmt.Sprintf("how many queries may wait in Consul at a time; 0 is %d, or %d with https", consul.DefaultMaxQueries, consul.DefaultMaxQueriesTLS))
	f.BoolVar(&o.warningHealthy, "consul-warning-healthy", true, "send traffic to instances whose checks are warning, by their weight for that")
	f.DurationVar(&o.resetHold, "consul-reset-hold", consul.DefaultResetHold, "how long services are kept that a Consul which has lost its data does not have any more")
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
	} else if token != "" && !o.secure() && !isLocal(o.address) {
		add("consul-address", "the token would go to %s in plaintext: use https://", o.address)
	}
	if o.resetHold <= 0 {
		add("consul-reset-hold", "%s: give a time above 0", o.resetHold)
	}
	if err := o.options().Validate(); err != nil {
		add("consul-address", "%v", err)
	}
}

// isLocal says whether what is sent to a URL stays on this machine.
func isLocal(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

func (o *consulRegistry) secure() bool { return strings.HasPrefix(o.address, "https://") }

// token is that of the moment.
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

func (o *consulRegistry) options() consul.Options {
	return consul.Options{
		Address: o.address, TLS: func() (*tls.Config, error) { return o.files.Config() }, Token: o.token,
		Datacenters: o.datacenters, Domain: o.domain, Namespace: o.namespace, MaxQueries: o.maxQueries,
		WarningUnhealthy: !o.warningHealthy, ResetHold: o.resetHold,
	}
}

// open makes the registry, nil where there is no Consul.
func (o *consulRegistry) open(to discovery.XDSUpdater, worker *cache.Worker, metrics prometheus.Registerer, logger *slog.Logger) (*consul.Registry, error) {
	if o.address == "" {
		return nil, nil
	}
	options := o.options()
	options.XDS, options.Worker, options.Registerer, options.Logger = to, worker, metrics, logger
	return consul.New(options)
}

// serveConsul answers how the registry of Consul is doing.
func serveConsul(r *consul.Registry) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodGet && request.Method != http.MethodHead {
			w.Header().Set("Allow", "GET")
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.Status()) // the client is gone
	})
}
