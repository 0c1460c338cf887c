package consul

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Status is how the registry is doing. Its JSON form is an API.
type Status struct {
	Synced      bool               `json:"synced"`
	Datacenters []DatacenterStatus `json:"datacenters"`
	// Flaws are what is wrong with services and instances in Consul.
	Flaws []Flaw `json:"flaws,omitempty"`
}

// DatacenterStatus is how one datacentre is doing.
type DatacenterStatus struct {
	// Name is "local" where it is that of the agent.
	Name string `json:"name"`
	// Whole is true once it was read as a whole.
	Whole bool `json:"whole"`
	// By is how it is followed: by service, by node, or by turns; see
	// Freshness.
	By string `json:"by"`
	// Queries wait in Consul, at most Limit at a time.
	Queries int `json:"queries"`
	Limit   int `json:"limit"`
	// Services and Instances are those that are known, with the Kept, which
	// Consul does not have, or does not show, any more.
	Services  int `json:"services"`
	Instances int `json:"instances"`
	Kept      int `json:"kept,omitempty"`
	// Freshness is how old what is known may be; 0 where Consul tells of a
	// change at once.
	Freshness time.Duration `json:"freshness,omitempty"`
	// Degraded says what is wrong, empty for nothing.
	Degraded string `json:"degraded,omitempty"`
}

// Flaw is something wrong with a service or an instance in Consul.
type Flaw struct {
	Datacenter string `json:"datacenter"`
	Service    string `json:"service"`
	// Instance is node/id, empty where it is the service as a whole.
	Instance string `json:"instance,omitempty"`
	// Reason says what is wrong and what comes of it.
	Reason string `json:"reason"`
	// LeftOut is true where it is not in the mesh for that.
	LeftOut bool `json:"leftOut"`
}

// Status returns how the registry is doing now.
func (r *Registry) Status() Status {
	s := Status{Synced: r.HasSynced(), Flaws: r.flaws()}
	for _, d := range r.datacenters {
		s.Datacenters = append(s.Datacenters, d.status())
	}
	return s
}

// Ready returns nil once the registry has synced, or else what it waits for.
func (r *Registry) Ready() error {
	if r.HasSynced() {
		return nil
	}
	var reasons []error
	for _, d := range r.datacenters {
		switch s := d.status(); {
		case s.Whole:
		case s.Degraded != "":
			reasons = append(reasons, fmt.Errorf("datacenter %s: not read yet: %s", s.Name, s.Degraded))
		default:
			reasons = append(reasons, fmt.Errorf("datacenter %s: it is being read", s.Name))
		}
	}
	return errors.Join(reasons...)
}

// Degraded returns what is worse than it should be, nil where nothing is: what
// the registry knows may then be old.
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
		Name: d.word(), Whole: d.r.catalog.whole([]string{d.name}), Queries: int(d.queries.Load()), Limit: d.max,
	}
	var doubtful bool
	s.Services = d.r.catalog.size(d.name)
	s.Instances, s.Kept, doubtful = d.r.catalog.sizes(d.name)
	d.mu.Lock()
	defer d.mu.Unlock()
	s.By = d.plan.String()
	if d.plan == byTurns {
		s.Freshness = time.Duration(s.Services) * turnPause
	}
	switch {
	case d.down != nil:
		s.Degraded = fmt.Sprintf("Consul cannot be read since %s, what was known of it is served: %v", d.since.UTC().Format(time.RFC3339), d.down)
	case len(d.faults) > 0:
		first := slices.Sorted(maps.Keys(d.faults))[0]
		s.Degraded = fmt.Sprintf("%d queries fail, what was known is served: %s: %v", len(d.faults), first, d.faults[first])
	case !d.heldUntil.IsZero() && s.Kept > 0:
		s.Degraded = fmt.Sprintf("Consul has lost its data; %d instances that it had are served until %s", s.Kept, d.heldUntil.UTC().Format(time.RFC3339))
	case d.doubtful || doubtful:
		s.Degraded = "the token reads nothing, or less than before; what it hides now is served as it was"
	case s.Freshness > 10*time.Second:
		s.Degraded = fmt.Sprintf("there are too many services and nodes for %d queries: a change may take %s to be seen; use https, or raise the limit here and limits.http_max_conns_per_client in Consul", d.max, s.Freshness)
	}
	return s
}

// flaws are all there are, in order.
func (r *Registry) flaws() []Flaw {
	var out []Flaw
	for _, d := range r.datacenters {
		d.mu.Lock()
		for _, name := range d.unusable {
			out = append(out, Flaw{Datacenter: d.word(), Service: name, Reason: flawOfName(name), LeftOut: true})
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

// report logs what is wrong with services that have changed: one line for each
// reason, as long as it lasts.
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
