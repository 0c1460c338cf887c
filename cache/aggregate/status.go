package aggregate

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/storage/errlist"
)

// Status describes a source.
type Status struct {
	Name, Kind, Where string
	// Writable says that the source is the store.
	Writable bool
	// Objects is the number of objects of the source, by kind. Shadowed is how many of
	// them do not count, because a source before it has their keys.
	Objects  map[string]int
	Shadowed int
	// Changed is when the objects last changed, zero for never.
	Changed time.Time
	// Err says what is wrong with the source; nil for nothing.
	Err error
	// Cache is the cache of the source.
	Cache Follower
}

// State describes a source other than the store in short.
type State struct {
	Name string
	// Complete says that everything in the source is merged: it was read, nothing is
	// wrong with it, and it leaves out no part as broken.
	Complete bool
	// Err says what is wrong with the source; nil for nothing.
	Err error
	// Cache is the cache of the source.
	Cache Follower
}

// States describes the sources other than the store, in the order of their priority.
func (c *Cache) States() []State {
	others := c.otherMembers()
	out := make([]State, len(others))
	for i := range others {
		m := &others[i]
		out[i] = State{Name: m.Name, Err: m.trouble(), Cache: m.Cache}
		parts, ok := m.Cache.(interface{ Whole() bool })
		out[i].Complete = out[i].Err == nil && m.snapshot != nil && (!ok || parts.Whole())
	}
	return out
}

// Statuses describes the sources, in the order of their priority. It counts all objects.
func (c *Cache) Statuses() []Status {
	c.mu.Lock()
	members, shadows := make([]member, len(c.members)), c.shadows
	for i, m := range c.members {
		members[i] = *m
	}
	c.mu.Unlock()
	out := make([]Status, len(members))
	for i := range members {
		m := &members[i]
		s := Status{Name: m.Name, Kind: m.Kind, Where: m.Where, Writable: m.own, Objects: map[string]int{}, Changed: m.changed, Err: m.trouble(), Cache: m.Cache}
		for object := range m.objects.Values() {
			s.Objects[object.Kind]++
		}
		out[i] = s
	}
	for shadow := range shadows.Values() {
		for _, object := range shadow.Objects[1:] {
			at := slices.IndexFunc(members, func(m member) bool { return m.own && object.Source == "" || m.Name == object.Source })
			out[at].Shadowed++
		}
	}
	return out
}

// trouble returns what is wrong with a source, nil for nothing.
func (m *member) trouble() error {
	at := m.since.UTC().Format(time.RFC3339)
	switch asked, ok := m.Cache.(interface{ Degraded() error }); {
	case m.failed != nil:
		return fmt.Errorf("it failed at %s: %w", at, m.failed)
	case ok && asked.Degraded() != nil:
		return asked.Degraded()
	case m.snapshot == nil && m.since.IsZero():
		return fmt.Errorf("it does not run yet")
	case m.snapshot == nil:
		return fmt.Errorf("it has not been read since %s", at)
	}
	return nil
}

// Degraded names the sources, other than the store, that have a problem. Their last
// content is served.
func (c *Cache) Degraded() error {
	var all *multierror.Error
	for _, m := range c.otherMembers() {
		if err := m.trouble(); err != nil {
			all = multierror.Append(all, fmt.Errorf("source %s: %w", m.Name, err))
		}
	}
	if all == nil {
		return nil
	}
	all.ErrorFormat = errlist.OneLine
	return all
}

// otherMembers returns copies of the members other than the store.
func (c *Cache) otherMembers() []member {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []member
	for _, m := range c.members {
		if !m.own {
			out = append(out, *m)
		}
	}
	return out
}

// The metrics.
var (
	objectsDesc  = prometheus.NewDesc("portolan_source_objects", "Objects of a source of configuration, those that do not count included.", []string{"source"}, nil)
	shadowedDesc = prometheus.NewDesc("portolan_source_shadowed_keys", "Keys that several sources of configuration have.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *Cache) Describe(out chan<- *prometheus.Desc) {
	out <- objectsDesc
	out <- shadowedDesc
}

// Collect implements prometheus.Collector.
func (c *Cache) Collect(out chan<- prometheus.Metric) {
	for _, m := range c.otherMembers() {
		out <- prometheus.MustNewConstMetric(objectsDesc, prometheus.GaugeValue, float64(m.objects.Len()), m.Name)
	}
	out <- prometheus.MustNewConstMetric(shadowedDesc, prometheus.GaugeValue, float64(c.Snapshot().Shadows().Len()))
}
