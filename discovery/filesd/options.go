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
	// Files are the files. One that is not there yet is waited for.
	Files []string
	// ServiceLabel is the label that names the service of targets; empty for
	// DefaultServiceLabel.
	ServiceLabel string
	// Domain follows the name of a service in its host name, unless that has a dot;
	// empty for DefaultDomain.
	Domain string
	// Namespace is the namespace of services that name none; empty for DefaultNamespace.
	Namespace string
	// Cluster tells the registry from others of its provider: no two may have the same.
	Cluster string
	// Patience is how long a start waits for a file that cannot be read; 0 for
	// DefaultPatience.
	Patience time.Duration
	// Timing is passed to package files.
	files.Timing

	// XDS takes the rows.
	XDS discovery.XDSUpdater
	// Worker runs the writes of rows.
	Worker *cache.Worker
	// Logger may be nil.
	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
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
