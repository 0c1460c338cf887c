package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache"
)

// Problems returns all problems of objects, in key order.
func (c *Cache) Problems() []cache.Problem {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []cache.Problem
	for _, t := range c.types {
		for _, p := range t.faults {
			out = append(out, *p)
		}
		for _, p := range t.nameless {
			out = append(out, *p)
		}
	}
	slices.SortFunc(out, func(a, b cache.Problem) int {
		return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Message, b.Message))
	})
	return out
}

// Degraded says why the content may be old, nil if it is not. Faults of objects do not
// count: Problems has them.
func (c *Cache) Degraded() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.link == nil {
		return nil
	}
	return fmt.Errorf("since %s: %w", c.since.UTC().Format(time.RFC3339), c.link)
}

// Whole says whether everything of the peer is served: it is followed, and no object has
// a fault.
func (c *Cache) Whole() bool {
	s := c.Status()
	return s.Degraded == nil && s.Broken == 0
}

// Status is the state of a peer.
type Status struct {
	// Address is the address of the peer.
	Address string
	// Objects is the number of objects served, Broken of objects with a fault.
	Objects, Broken int
	// Refused counts the responses that were refused.
	Refused int
	// LastChange is when objects last changed.
	LastChange time.Time
	// Degraded says why the content may be old; Since is since when.
	Degraded error
	Since    time.Time
}

// Status returns the present state of the peer.
func (c *Cache) Status() Status {
	s := Status{Address: c.o.Address, Objects: c.Snapshot().Configs().Len()}
	c.mu.RLock()
	defer c.mu.RUnlock()
	s.Refused, s.LastChange, s.Degraded = c.refused, c.lastChange, c.link
	if c.link != nil {
		s.Since = c.since
	}
	for _, t := range c.types {
		s.Broken += len(t.nameless)
		for _, p := range t.faults {
			if !p.Warning {
				s.Broken++
			}
		}
	}
	return s
}

// Ready says why the peer is not read yet, nil once it is.
func (c *Cache) Ready() error {
	if c.Snapshot() != nil {
		return nil
	}
	return cmp.Or(c.Degraded(), errors.New("the peer "+c.o.Address+" is not read yet"))
}

func (c *Cache) collectors() []prometheus.Collector {
	gauge := func(name, help string, value func(Status) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(c.Status()) })
	}
	return []prometheus.Collector{
		gauge("portolan_config_peer_objects", "Objects that the other control plane has sent and that are held.", func(s Status) float64 { return float64(s.Objects) }),
		gauge("portolan_config_peer_broken", "Objects of the other control plane that have a fault; what they last held is served.",
			func(s Status) float64 { return float64(s.Broken) }),
		gauge("portolan_config_peer_lost_timestamp_seconds", "Since when the other control plane is not followed; 0 while it is.", func(s Status) float64 {
			if s.Degraded == nil {
				return 0
			}
			return float64(s.Since.UnixMilli()) / 1000
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "portolan_config_peer_refused_total", Help: "Answers of the other control plane that could not be decoded.",
		}, func() float64 { return float64(c.Status().Refused) }),
	}
}

type problemChanges struct{ added, solved []cache.Problem }
