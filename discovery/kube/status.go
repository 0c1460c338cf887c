package kube

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/discovery"
)

// Status describes the state of a cluster's registry. Its JSON form is an API.
type Status struct {
	Cluster string `json:"cluster"`
	// Server is the URL of the API server.
	Server string `json:"server"`
	// Secret is the Secret of the mesh that names the cluster; empty if a flag does.
	Secret string `json:"secret,omitempty"`
	Synced bool   `json:"synced"`
	// AsOf is when the served content was last confirmed, if the cluster was not read since the
	// server started.
	AsOf *time.Time `json:"asOf,omitempty"`
	// Services, Endpoints and Pods count what is known of the cluster.
	Services  int `json:"services"`
	Endpoints int `json:"endpoints"`
	Pods      int `json:"pods"`
	// Degraded says what is wrong, empty if nothing is. Where it only sums that up, as it does rights
	// that the account lacks, Details says it all.
	Degraded string   `json:"degraded,omitempty"`
	Details  []string `json:"details,omitempty"`
	// Flaws lists what of Services and EndpointSlices is not served, and objects that cannot be read.
	Flaws []Flaw `json:"flaws,omitempty"`
}

// Flaw is what of an object of a cluster is not served.
type Flaw struct {
	// Object is its kind, namespace and name: Service shop/web.
	Object string `json:"object"`
	Reason string `json:"reason"`
	// Unread is true if the object cannot be read, so that what was known of it counts.
	Unread bool `json:"unread,omitempty"`
}

// Status returns the current state of the registry.
func (r *Registry) Status() Status {
	k := &r.settled.Load().known
	l := r.link.Load()
	s := Status{Cluster: r.Cluster(), Server: l.Server(), Secret: l.secret, Synced: r.HasSynced()}
	for _, item := range k.objects.Prefix(servicePrefix) {
		s.Services++
		of, _ := item.(*service)
		for _, reason := range of.Flaws {
			s.Flaws = append(s.Flaws, Flaw{Object: "Service " + of.key(), Reason: reason})
		}
	}
	for _, item := range k.objects.Prefix(slicePrefix) {
		of, _ := item.(*slice)
		for _, reason := range of.Flaws {
			s.Flaws = append(s.Flaws, Flaw{Object: "EndpointSlice " + serviceKey(of.Namespace, of.Name), Reason: reason})
		}
	}
	for path, p := range k.built.All() {
		s.Endpoints += len(p.endpoints)
		if len(p.awaited) > 0 {
			of, _ := k.objects.Value(slicePrefix + path).(*slice)
			s.Flaws = append(s.Flaws, Flaw{
				Object: "EndpointSlice " + serviceKey(of.Namespace, of.Name),
				Reason: "the cluster does not tell of these pods yet, and their endpoints are left out until it does: " + strings.Join(p.awaited, ", "),
			})
		}
	}
	for range k.objects.Prefix(podPrefix) {
		s.Pods++
	}
	for _, p := range r.link.Load().Problems() {
		s.Flaws = append(s.Flaws, Flaw{Object: p.Object, Reason: p.Message, Unread: true})
	}
	if err := r.Degraded(); err != nil {
		s.Degraded, s.Details = err.Error(), cluster.Details(err)
	}
	if at, restored := r.inbox.lastKnown(); restored {
		s.AsOf = &at
	}
	return s
}

// lastKnown returns when the content was confirmed, if it is still that of an earlier server.
func (i *inbox) lastKnown() (time.Time, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.confirmed, !i.begun && !i.confirmed.IsZero()
}

// SourceStatuses implements discovery.SourceReporter.
func (r *Registry) SourceStatuses() []discovery.SourceStatus {
	s := discovery.SourceStatus{Name: r.Cluster(), State: discovery.SourceLive}
	for range r.settled.Load().known.objects.Prefix(servicePrefix) {
		s.Services++
	}
	at, restored := r.inbox.lastKnown()
	err := r.Degraded()
	if err != nil {
		s.Problem = err.Error()
	}
	switch {
	case restored:
		s.State, s.AsOf = discovery.SourceLastKnown, at
	case !r.inbox.hasBegun():
		s.State = discovery.SourceSyncing
	case err != nil:
		s.State = discovery.SourceDegraded
	}
	return []discovery.SourceStatus{s}
}

// Ready returns nil once the registry has synced, or else what it waits for.
func (r *Registry) Ready() error {
	if r.HasSynced() {
		return nil
	}
	if why := r.Away(); why != nil {
		return fmt.Errorf("cluster %s: it was not read yet: %w", r.Cluster(), why)
	}
	return fmt.Errorf("cluster %s: it is being read", r.Cluster())
}

// Degraded returns what is wrong, nil if nothing is. What the registry knows may then be old, unless only
// the kubeconfig is one that should have been replaced.
func (r *Registry) Degraded() error {
	l := r.link.Load()
	err := l.Degraded()
	switch {
	case err == nil:
		return nil
	case l.Followed() && r.inbox.isWhole():
		return fmt.Errorf("cluster %s: %w", r.Cluster(), err)
	}
	what := "what was known of it is served"
	if at, restored := r.inbox.lastKnown(); restored {
		what = "what was known of it at " + at.UTC().Format(time.RFC3339) + " is served"
	} else if !r.inbox.hasBegun() {
		what = "nothing is known of it"
	}
	return fmt.Errorf("cluster %s: %s: %w", r.Cluster(), what, err)
}

// Away returns why the cluster is not followed, nil while it is. A cluster that has not answered yet
// counts as followed.
func (r *Registry) Away() error {
	for _, s := range r.link.Load().Status() {
		if s.Degraded != nil && !errors.Is(s.Degraded, cluster.ErrUnanswered) {
			return s.Degraded
		}
	}
	return nil
}

// Registries returns the registries: those of Registry in the order in which they were made, then
// those of Remote by name.
func (c *Clusters) Registries() []*Registry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// Status returns the state of every cluster, with flaws about what clusters say differently.
func (c *Clusters) Status() []Status {
	out, registries := []Status{}, c.Registries()
	for _, r := range registries {
		out = append(out, r.Status())
	}
	addIgnored(registries, out)
	return out
}

// Ready returns nil once all clusters have synced, or else what they wait for.
func (c *Clusters) Ready() error {
	var reasons []error
	for _, r := range c.Registries() {
		reasons = append(reasons, r.Ready())
	}
	return errors.Join(reasons...)
}

// Degraded returns what is wrong with clusters, nil if nothing is.
func (c *Clusters) Degraded() error {
	var reasons []error
	for _, r := range c.Registries() {
		reasons = append(reasons, r.Degraded())
	}
	return errors.Join(reasons...)
}
