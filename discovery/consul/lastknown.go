package consul

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// savedState is saved once per datacentre. Its field names, and those of savedInstance, are
// part of the stored format.
type savedState struct {
	Servers []string `json:"servers,omitempty"`
	Index   uint64   `json:"index,omitempty"`
}

// savedInstance is an instance in the store.
type savedInstance struct {
	ID       string            `json:"id"`
	Service  string            `json:"service"`
	Node     string            `json:"node,omitempty"`
	Name     string            `json:"name,omitempty"`
	Address  string            `json:"address,omitempty"`
	Locality string            `json:"locality,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	TLSMode  string            `json:"tlsMode,omitempty"`
	Account  string            `json:"account,omitempty"`
	Health   string            `json:"health,omitempty"`
	Weight   uint32            `json:"weight,omitempty"`
	Ports    []savedPort       `json:"ports,omitempty"`
	VIP      string            `json:"vip,omitempty"`
	Away     bool              `json:"away,omitempty"`
	Flaw     string            `json:"flaw,omitempty"`
	LeftOut  bool              `json:"leftOut,omitempty"`
}

type savedPort struct {
	Number   int    `json:"number"`
	Target   int    `json:"target"`
	Protocol string `json:"protocol,omitempty"`
}

// unhealthy is the saved health of an instance that gets no traffic.
const unhealthy = "unhealthy"

// Value implements lastknown.Item.
func (i *instance) Value() ([]byte, error) {
	s := savedInstance{
		ID: i.id, Service: i.service, Node: i.node, Name: i.endpoint.WorkloadName, Address: i.endpoint.Address,
		Locality: i.endpoint.Locality.Label, Labels: i.endpoint.Labels, TLSMode: i.endpoint.TLSMode, Account: i.endpoint.ServiceAccount,
		Weight: i.endpoint.Weight, VIP: i.vip, Away: i.away, Flaw: i.flaw, LeftOut: i.leftOut,
	}
	if i.endpoint.Health != discovery.Healthy {
		s.Health = unhealthy
	}
	for _, p := range i.ports {
		s.Ports = append(s.Ports, savedPort{p.number, p.target, string(p.protocol)})
	}
	return json.Marshal(s)
}

// instanceOf is the inverse of Value.
func instanceOf(o *Options, value []byte) (*instance, error) {
	var s savedInstance
	if err := json.Unmarshal(value, &s); err != nil {
		return nil, err
	}
	if s.ID == "" || s.Service == "" {
		return nil, fmt.Errorf("it has no id or no service")
	}
	i := &instance{
		id: s.ID, service: s.Service, node: s.Node, vip: s.VIP, away: s.Away, flaw: s.Flaw, leftOut: s.LeftOut,
		endpoint: discovery.Endpoint{
			Address: s.Address, Labels: labels.Instance(s.Labels), TLSMode: s.TLSMode, ServiceAccount: s.Account, Weight: s.Weight,
			Locality: discovery.Locality{Label: s.Locality, Cluster: o.Cluster}, Namespace: o.Namespace, WorkloadName: s.Name,
		},
	}
	if s.Health != "" {
		i.endpoint.Health = discovery.Unhealthy
	}
	for _, p := range s.Ports {
		i.ports = append(i.ports, port{p.Number, p.Target, discovery.Protocol(p.Protocol)})
	}
	return i, nil
}

// Sources returns the datacentres, as sources whose instances can be saved.
func (r *Registry) Sources() []lastknown.Source {
	var out []lastknown.Source
	for _, d := range r.datacenters {
		out = append(out, d)
	}
	return out
}

// SourceName implements lastknown.Source.
func (d *datacenter) SourceName() string {
	part := func(s string) string { return cmp.Or(url.PathEscape(s), "_") }
	return "consul/" + part(d.r.o.Cluster) + "/" + part(d.name)
}

// Known implements lastknown.Source.
func (d *datacenter) Known() (lastknown.Known, bool) {
	items, index, ok := d.r.catalog.confirmed(d.name)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !ok || !d.heldUntil.IsZero() {
		return lastknown.Known{}, false
	}
	state, err := json.Marshal(savedState{slices.Sorted(maps.Keys(d.servers)), index})
	known := lastknown.Known{State: state, Items: items}
	if d.suspicious {
		known.Until = d.since
	}
	return known, err == nil
}

// restoreLastKnown fills the datacentre with its last known content, and returns how long to
// wait for Consul.
func (d *datacenter) restoreLastKnown(ctx context.Context) (patience time.Duration) {
	recalled, ok := d.readLastKnown(ctx)
	if !ok || recalled.Confirmed.IsZero() {
		return d.r.o.ResetHold
	}
	var instances []*instance
	for _, key := range slices.Sorted(maps.Keys(recalled.Items)) {
		i, err := instanceOf(&d.r.o, recalled.Items[key])
		if err == nil && key != i.service+"/"+i.id {
			err = fmt.Errorf("it is of %s/%s", i.service, i.id)
		}
		if err != nil {
			d.r.o.Logger.Warn("an instance that was saved is left out: it cannot be read", "datacenter", d.displayName(), "instance", key, "err", err)
			continue
		}
		instances = append(instances, i)
	}
	var state savedState
	if err := json.Unmarshal(recalled.State, &state); err != nil {
		d.r.o.Logger.Warn("what was saved of Consul cannot be read as a whole", "datacenter", d.displayName(), "err", err)
	}
	d.mu.Lock()
	d.restored, d.index, d.servers = recalled.Confirmed, state.Index, setOf(state.Servers)
	d.mu.Unlock()
	d.publish(d.r.catalog.restore(d.name, instances))
	return d.r.o.Patience
}

// readLastKnown retries while the store is away.
func (d *datacenter) readLastKnown(ctx context.Context) (lastknown.Recalled, bool) {
	if d.r.o.Memory == nil {
		return lastknown.Recalled{}, false
	}
	backoff := retry.New(minPause, 10*maxPause)
	for {
		recalled, err := d.r.o.Memory.Recall(ctx, d.SourceName())
		if err == nil || ctx.Err() != nil {
			return recalled, err == nil
		}
		d.r.o.Logger.Warn("what was last known of Consul cannot be read from the store, it is tried again", "datacenter", d.displayName(), "err", err)
		_ = backoff.Wait(ctx)
	}
}
