package consul

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
)

// The defaults of Options.
const (
	DefaultDomain    = "service.consul"
	DefaultNamespace = "consul"
	// DefaultMaxQueries leaves room below 200, the connections that Consul accepts from one
	// address unless limits.http_max_conns_per_client says otherwise.
	// https://github.com/hashicorp/consul/pull/7289
	DefaultMaxQueries = 150
	// DefaultMaxQueriesTLS is DefaultMaxQueries over TLS, where Consul speaks
	// HTTP/2 and one connection carries 250 queries.
	DefaultMaxQueriesTLS = 5000
	DefaultResetHold     = 5 * time.Minute
	DefaultPatience      = 5 * time.Second
)

// Options configure a Registry. Address, XDS and Worker are required.
type Options struct {
	// Address is the URL of a Consul agent: http://HOST:PORT or https://HOST:PORT.
	Address string
	// TLS returns the configuration for each new connection to an https Address; nil means the
	// system's certificate authorities.
	TLS func() (*tls.Config, error)
	// Token returns the ACL token for each request; nil means none.
	Token func() (string, error)

	// Datacenters are the datacentres to read; empty means the datacentre of the agent.
	Datacenters []string
	// Domain is the suffix of host names: the host of a service is its name, a dot and Domain.
	// Empty means DefaultDomain.
	Domain string
	// Namespace is the namespace of all these services in the mesh; empty means
	// DefaultNamespace.
	Namespace string
	// TrustDomain is the trust domain of service accounts; empty means
	// discovery.DefaultTrustDomain.
	TrustDomain string
	// Cluster distinguishes this registry from other Consul registries, and must be unique
	// among them.
	Cluster string
	// MaxQueries is how many queries may wait in Consul at a time; 0 means DefaultMaxQueries,
	// or DefaultMaxQueriesTLS over TLS.
	MaxQueries int
	// WarningUnhealthy stops traffic to instances whose worst check is warning.
	WarningUnhealthy bool
	// ResetHold is how long the registry keeps content that a Consul lacks after it lost
	// its data. It is also how long a start waits for a Consul that has never been read. 0
	// means DefaultResetHold.
	ResetHold time.Duration

	// Memory recalls the last known content, which is served if Consul cannot be read within
	// Patience from the start. Nil means none; a Patience of 0 means DefaultPatience.
	Memory   lastknown.Memory
	Patience time.Duration

	// XDS receives the rows.
	XDS discovery.XDSUpdater
	// Worker runs the writes of rows.
	Worker *cache.Worker
	// Logger may be nil.
	Logger *slog.Logger
	// Registerer registers the metrics; nil means no metrics.
	Registerer prometheus.Registerer
}

// minQueries is enough to follow the lists and the checks.
const minQueries = commonQueries

// Validate says all that is wrong with the options.
func (o Options) Validate() error { return o.complete() }

// complete fills in the defaults, and says all that is wrong.
func (o *Options) complete() error {
	var faults []error
	address, err := url.Parse(o.Address)
	switch {
	case err == nil && address.User != nil:
		faults = append(faults, errors.New("address: a user is of no use to Consul: leave it out"))
	case err != nil || (address.Scheme != "http" && address.Scheme != "https") || address.Host == "" || strings.Trim(address.Path, "/") != "":
		faults = append(faults, fmt.Errorf("address: %q is not http://HOST:PORT or https://HOST:PORT", o.Address))
	}
	o.TrustDomain = cmp.Or(o.TrustDomain, discovery.DefaultTrustDomain)
	o.Domain = strings.ToLower(strings.Trim(cmp.Or(o.Domain, DefaultDomain), "."))
	for label := range strings.SplitSeq(o.Domain, ".") {
		if !isLabel(label) {
			faults = append(faults, fmt.Errorf("domain: %q is not a DNS name", o.Domain))
			break
		}
	}
	if o.Namespace = cmp.Or(o.Namespace, DefaultNamespace); !isLabel(o.Namespace) {
		faults = append(faults, fmt.Errorf("namespace: %q is not a DNS label", o.Namespace))
	}
	if o.MaxQueries == 0 {
		o.MaxQueries = DefaultMaxQueries
		if address != nil && address.Scheme == "https" {
			o.MaxQueries = DefaultMaxQueriesTLS
		}
	}
	o.Datacenters = slices.Compact(slices.Sorted(slices.Values(o.Datacenters)))
	if len(o.Datacenters) == 0 {
		o.Datacenters = []string{""}
	}
	if o.MaxQueries < minQueries*len(o.Datacenters) {
		faults = append(faults, fmt.Errorf("max queries: %d is too few: at least %d for each datacenter", o.MaxQueries, minQueries))
	}
	o.ResetHold, o.Patience = cmp.Or(o.ResetHold, DefaultResetHold), cmp.Or(o.Patience, DefaultPatience)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(faults...)
}
