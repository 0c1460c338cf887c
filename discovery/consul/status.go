package consul

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
)

// Status describes the state of the registry. Its JSON form is an API.
type Status struct {
	Synced      bool               `json:"synced"`
	Datacenters []DatacenterStatus `json:"datacenters"`
	// Flaws lists faults of services and instances in Consul.
	Flaws []Flaw `json:"flaws,omitempty"`
}

// DatacenterStatus describes the state of one datacentre.
type DatacenterStatus struct {
	// Name is "local" for the datacentre of the agent.
	Name string `json:"name"`
	// State is syncing until the datacentre is served, then synced, or degraded while some of
	// its content may be old.
	State string `json:"state"`
	// Whole is true once every service was read.
	Whole bool `json:"whole"`
	// LastKnown is the time of the saved content, if that is served because Consul was not
	// read yet.
	LastKnown *time.Time `json:"lastKnown,omitempty"`
	// AsOf is when the served content was last confirmed, if Consul cannot be read.
	AsOf *time.Time `json:"asOf,omitempty"`
	// By is how changes are found: by service, node or sweep; see Freshness.
	By string `json:"by"`
	// Queries is how many queries wait in Consul; Limit is how many may.
	Queries int `json:"queries"`
	Limit   int `json:"limit"`
	// Services and Instances count what the registry knows. They include Kept, the instances
	// that Consul no longer has or no longer shows.
	Services  int `json:"services"`
	Instances int `json:"instances"`
	Kept      int `json:"kept,omitempty"`
	// Freshness is how old the content may be, apart from checks; 0 if Consul reports each
	// change at once.
	Freshness time.Duration `json:"freshness,omitempty"`
	// Degraded says what is wrong, empty if nothing is.
	Degraded string `json:"degraded,omitempty"`
}

// Flaw is a fault of a service or an instance in Consul.
type Flaw struct {
	Datacenter string `json:"datacenter"`
	Service    string `json:"service"`
	// Instance is node/id, empty if the whole service is at fault.
	Instance string `json:"instance,omitempty"`
	// Reason says what is wrong, and what follows.
	Reason string `json:"reason"`
	// LeftOut is true if the service or instance is not in the mesh for that reason.
	LeftOut bool `json:"leftOut"`
}

// The states of a datacentre.
const (
	StateSyncing  = "syncing"
	StateSynced   = "synced"
	StateDegraded = "degraded"
)

// Status returns the current state of the registry.
func (r *Registry) Status() Status {
	s := Status{Synced: r.HasSynced(), Flaws: r.flaws()}
	for _, d := range r.datacenters {
		s.Datacenters = append(s.Datacenters, d.status())
	}
	return s
}

// SourceStatuses implements discovery.SourceReporter. Each datacentre is a source.
func (r *Registry) SourceStatuses() []discovery.SourceStatus {
	var out []discovery.SourceStatus
	for _, d := range r.Status().Datacenters {
		s := discovery.SourceStatus{Name: d.Name, State: discovery.SourceLive, Services: d.Services, Problem: d.Degraded}
		switch {
		case d.State == StateSyncing:
			s.State = discovery.SourceSyncing
		case d.AsOf != nil:
			s.State, s.AsOf = discovery.SourceLastKnown, *d.AsOf
		case d.State == StateDegraded:
			s.State = discovery.SourceDegraded
		}
		out = append(out, s)
	}
	return out
}

// Ready returns nil once the registry has synced, or else what it waits for.
func (r *Registry) Ready() error {
	if r.HasSynced() {
		return nil
	}
	var reasons []error
	for _, d := range r.datacenters {
		switch s := d.status(); {
		case s.State != StateSyncing:
		case s.Degraded != "":
			reasons = append(reasons, fmt.Errorf("datacenter %s: not read yet: %s", s.Name, s.Degraded))
		default:
			reasons = append(reasons, fmt.Errorf("datacenter %s: it is being read", s.Name))
		}
	}
	return errors.Join(reasons...)
}

// Degraded returns what is wrong, nil if nothing is. What the registry knows may then be old.
func (r *Registry) Degraded() error {
	var reasons []error
	for _, d := range r.datacenters {
		if s := d.status(); s.Degraded != "" {
			reasons = append(reasons, fmt.Errorf("datacenter %s: %s", s.Name, s.Degraded))
		}
	}
	return errors.Join(reasons...)
}

func (d *datacenter) status() DatacenterStatus {
	s := DatacenterStatus{
		Name: d.displayName(), Whole: d.r.catalog.isWhole(d.name), Queries: int(d.queries.Load()), Limit: d.max, State: StateSyncing,
	}
	settled := d.r.catalog.areSettled([]string{d.name})
	s.Services = d.r.catalog.size(d.name)
	instances, kept, doubtful := d.r.catalog.sizes(d.name)
	s.Instances, s.Kept = instances, kept
	d.mu.Lock()
	defer d.mu.Unlock()
	s.By = d.plan.String()
	if d.sweeper != nil && d.plan == bySweep {
		s.Freshness = d.sweeper.freshness()
	}
	if settled && !s.Whole && !d.restored.IsZero() {
		restored := d.restored
		s.LastKnown = &restored
	}
	switch {
	case s.LastKnown != nil:
		s.AsOf = s.LastKnown
	case s.Whole && d.down != nil:
		since := d.since
		s.AsOf = &since
	}
	switch s.Degraded = d.degraded(s, settled, doubtful); {
	case s.Degraded != "" && settled:
		s.State = StateDegraded
	case settled:
		s.State = StateSynced
	}
	return s
}

// degraded says what is wrong. It must be called with mu held.
func (d *datacenter) degraded(s DatacenterStatus, settled, doubtful bool) string {
	what := "what was known of it is served"
	switch {
	case s.LastKnown != nil:
		what = "what was known of it at " + clock(*s.LastKnown) + " is served"
	case !s.Whole:
		what = "nothing is known of it"
	}
	switch {
	case d.down != nil:
		return fmt.Sprintf("Consul cannot be read since %s, %s: %v", clock(d.since), what, d.down)
	case len(d.faults) > 0:
		first := slices.Sorted(maps.Keys(d.faults))[0]
		return fmt.Sprintf("%d queries fail, %s: %s: %v", len(d.faults), what, first, d.faults[first])
	case settled && !s.Whole:
		return "Consul was not read as a whole yet, " + what
	case !d.heldUntil.IsZero() && s.Kept > 0:
		return fmt.Sprintf("Consul has lost its data; %d instances that it had are served until %s", s.Kept, clock(d.heldUntil))
	case d.doubtful || doubtful:
		return "the token reads nothing, or less than before; what it hides now is served as it was"
	case s.Freshness > 10*time.Second:
		return fmt.Sprintf("there are too many services and nodes for %d queries: a change may take %s to be seen; use https, or raise the limit here and limits.http_max_conns_per_client in Consul", d.max, s.Freshness.Round(time.Second))
	}
	return ""
}

// clock formats a time for people.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// flaws returns all flaws in order.
func (r *Registry) flaws() []Flaw {
	var out []Flaw
	for _, d := range r.datacenters {
		d.mu.Lock()
		for _, name := range d.unusable {
			out = append(out, Flaw{Datacenter: d.displayName(), Service: name, Reason: flawOfName(name), LeftOut: true})
		}
		d.mu.Unlock()
	}
	r.catalog.each(func(service string, instances []*instance, datacenters []string) {
		for n, i := range instances {
			if i.flaw != "" {
				out = append(out, Flaw{Datacenter: wordOf(datacenters[n]), Service: service, Instance: i.id, Reason: i.flaw, LeftOut: i.leftOut})
			}
		}
		if reason := disagreement(instances); reason != "" {
			out = append(out, Flaw{Service: service, Reason: reason})
		}
	})
	return out
}

// report logs the faults of changed services. It logs each reason once while it lasts.
func (r *Registry) report(services []string) {
	r.reported.mu.Lock()
	defer r.reported.mu.Unlock()
	for _, name := range services {
		now := map[string]bool{}
		instances := r.catalog.instances(name)
		for _, i := range instances {
			now[i.flaw] = true
		}
		now[disagreement(instances)] = true
		delete(now, "")
		for reason := range now {
			if !r.reported.reasons[name][reason] {
				r.o.Logger.Warn("a service of Consul is at fault", "service", name, "reason", reason)
			}
		}
		if r.reported.reasons[name] = now; len(now) == 0 {
			delete(r.reported.reasons, name)
		}
	}
}
