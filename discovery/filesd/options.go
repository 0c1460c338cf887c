package filesd

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/files"
)

// The defaults of Options.
const (
	DefaultServiceLabel = "portolan_service"
	DefaultDomain       = "mesh.internal"
	DefaultNamespace    = "default"
	DefaultPatience     = 5 * time.Second
)

// Options configure a Registry. Files, XDS and Worker are required.
type Options struct {
	// Files are the paths of the files. The registry waits for one that does not exist yet.
	Files []string
	// ServiceLabel is the label that names the service of targets; empty means
	// DefaultServiceLabel.
	ServiceLabel string
	// Domain is appended to a service name without a dot to make its host name; empty means
	// DefaultDomain.
	Domain string
	// Namespace is the namespace of services whose targets name none; empty means
	// DefaultNamespace.
	Namespace string
	// TrustDomain is the trust domain of service accounts; empty means
	// discovery.DefaultTrustDomain.
	TrustDomain string
	// Cluster distinguishes this registry from others of its provider, and must be unique
	// among them.
	Cluster string
	// Patience is how long HasSynced waits for a file that cannot be read; 0 means
	// DefaultPatience.
	Patience time.Duration
	// Timing is how package files follows the files.
	files.Timing

	// XDS receives the rows.
	XDS discovery.XDSUpdater
	// Worker runs the writes of rows.
	Worker *cache.Worker
	// Logger may be nil.
	Logger *slog.Logger
	// Registerer registers the metrics; nil means no metrics.
	Registerer prometheus.Registerer
}

// Validate says all that is wrong with the options.
func (o Options) Validate() error { return o.complete() }

// complete fills in the defaults, and says all that is wrong.
func (o *Options) complete() error {
	var faults []error
	if len(o.Files) == 0 {
		faults = append(faults, errors.New("files: there are none"))
	}
	seen := map[string]bool{}
	for _, name := range o.Files {
		if name == "" || seen[name] {
			faults = append(faults, fmt.Errorf("files: %q is empty or there twice", name))
		}
		seen[name] = true
	}
	o.ServiceLabel = cmp.Or(o.ServiceLabel, DefaultServiceLabel)
	o.TrustDomain = cmp.Or(o.TrustDomain, discovery.DefaultTrustDomain)
	o.Domain = strings.ToLower(strings.Trim(cmp.Or(o.Domain, DefaultDomain), "."))
	if len(validation.IsDNS1123Subdomain(o.Domain)) > 0 {
		faults = append(faults, fmt.Errorf("domain: %q is not a DNS name", o.Domain))
	}
	if o.Namespace = cmp.Or(o.Namespace, DefaultNamespace); !isNamespace(o.Namespace) {
		faults = append(faults, fmt.Errorf("namespace: %q is not a DNS label", o.Namespace))
	}
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(faults...)
}

func isNamespace(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }
