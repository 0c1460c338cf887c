package beside

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/status"
)

const (
	// differLimit is how long two servers may have different objects of a source before
	// that is reported. A change reaches them one after another, and their reports come
	// later.
	differLimit = 3 * time.Second
	// maxDiffering bounds the objects that a server names as different.
	maxDiffering = 16
	// maxNamed bounds the objects, and the differences, that a message names.
	maxNamed = 3
)

// Difference is a difference of a source between this server and another one. Its JSON
// form is an API.
type Difference struct {
	// Source is the source's name on this server, or on the other one if only that has it.
	Source string `json:"source"`
	// Server is the id of the other server.
	Server string `json:"server"`
	// Message says what differs.
	Message string `json:"message"`
	// Lacking says that this server has no such source.
	Lacking bool `json:"lacking,omitempty"`
}

// differing holds the ids of the objects that differ between two servers.
type differing struct{ here, there, changed []uint64 }

func compareContents(here, there func(part int) *status.Content) (d differing) {
	for part := range status.UseParts {
		a, b := here(part), there(part)
		for _, one := range objectsIn(a) {
			switch other, found := b.Find(one.ID); {
			case !found:
				d.here = append(d.here, one.ID)
			case other.Hash != one.Hash:
				d.changed = append(d.changed, one.ID)
			}
		}
		for _, other := range objectsIn(b) {
			if _, found := a.Find(other.ID); !found {
				d.there = append(d.there, other.ID)
			}
		}
	}
	return d
}

func objectsIn(c *status.Content) []status.ContentObject {
	if c == nil {
		return nil
	}
	return c.Objects
}

// pairs matches the sources of two servers by name, and the others in their order, since
// machines may have the same directory at different paths. One of a pair may be nil.
func pairs(here, there []status.SourceState) (out [][2]*status.SourceState) {
	var rest [2][]*status.SourceState
	for i := range here {
		if j := slices.IndexFunc(there, func(o status.SourceState) bool { return o.Name == here[i].Name }); j >= 0 {
			out = append(out, [2]*status.SourceState{&here[i], &there[j]})
		} else {
			rest[0] = append(rest[0], &here[i])
		}
	}
	for j := range there {
		if !slices.ContainsFunc(here, func(o status.SourceState) bool { return o.Name == there[j].Name }) {
			rest[1] = append(rest[1], &there[j])
		}
	}
	for i := range max(len(rest[0]), len(rest[1])) {
		var pair [2]*status.SourceState
		for side := range pair {
			if i < len(rest[side]) {
				pair[side] = rest[side][i]
			}
		}
		out = append(out, pair)
	}
	return out
}

// Compare compares this server with the others, and logs differences that last. It adds
// to the report of this server which of its objects differ on others.
func (s *Sources) Compare(own string, report Report, facts *statuses.Reports, at time.Time, log *slog.Logger) {
	s.setLasting(s.compare(own, report, facts), at, log)
}

// compare returns the differences between this server and the others. It adds to a
// report which of its objects differ on others.
func (s *Sources) compare(server string, report Report, facts *statuses.Reports) []Difference {
	if facts == nil {
		return nil
	}
	var out []Difference
	tell := map[string][]uint64{} // by source
	for other := range facts.Sources.Values() {
		if other.Replica == server {
			continue
		}
		for _, pair := range pairs(report.States, other.States) {
			here, there := pair[0], pair[1]
			switch {
			case here == nil:
				out = append(out, Difference{there.Name, other.Replica, fmt.Sprintf("this server has no such source, and %s has it", nameOf(other)), true})
			case there == nil:
				out = append(out, Difference{here.Name, other.Replica, nameOf(other) + " has no such source", false})
			case here.Digest != there.Digest || here.Objects != there.Objects:
				d := compareContents(func(part int) *status.Content {
					return report.Contents[etcd.ContentKey(server, here.Name, part)]
				}, func(part int) *status.Content {
					return facts.Contents.Value(etcd.ContentPath(other.Replica, there.Name, part))
				})
				tell[here.Name] = slices.Concat(tell[here.Name], d.here, d.changed)
				if message := s.message(here.Name, d, there); message != "" {
					out = append(out, Difference{here.Name, other.Replica, nameOf(other) + " " + message, false})
				}
			case there.Problem != "":
				out = append(out, Difference{here.Name, other.Replica, nameOf(other) + " cannot read it: " + there.Problem, false})
			}
		}
	}
	for i := range report.States {
		state := &report.States[i]
		ids := tell[state.Name]
		slices.Sort(ids)
		for _, key := range s.keysOf(state.Name, slices.Compact(ids)) {
			if len(state.Differing) < maxDiffering {
				state.Differing = append(state.Differing, key.Path())
			}
		}
	}
	slices.SortFunc(out, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Server, b.Server))
	})
	return out
}

// nameOf returns the name of a server for people.
func nameOf(s *status.Sources) string {
	name, _, _ := strings.Cut(s.Replica, "/")
	return "the server " + name
}

// message says how the objects of a source differ, empty if they do not.
func (s *Sources) message(source string, d differing, there *status.SourceState) string {
	var parts []string
	add := func(what string, names []string, count int) {
		if count == 0 {
			return
		}
		names = names[:min(len(names), maxNamed)]
		text := fmt.Sprintf("%s: %s", what, strings.Join(names, ", "))
		if more := count - len(names); len(names) == 0 {
			text = fmt.Sprintf("%s: %d", what, more)
		} else if more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, text)
	}
	add("different there", config.Names(s.keysOf(source, d.changed)), len(d.changed))
	add("only here", config.Names(s.keysOf(source, d.here)), len(d.here))
	var theirs []config.Key
	for _, path := range there.Differing {
		if key, ok := config.KeyOfPath(path); ok && slices.Contains(d.there, status.ObjectID(key)) {
			theirs = append(theirs, key)
		}
	}
	add("only there", config.Names(theirs), len(d.there))
	if len(parts) == 0 {
		return ""
	}
	text := "has other objects, " + strings.Join(parts, "; ")
	if there.Problem != "" {
		text += "; it cannot read them: " + there.Problem
	}
	return text
}

// keysOf returns the keys of the published objects of a source with some ids, in order.
func (s *Sources) keysOf(source string, ids []uint64) []config.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []config.Key
	for _, id := range ids {
		if one, ok := s.find(source, id); ok {
			keys = append(keys, one.key)
		}
	}
	slices.SortFunc(keys, func(a, b config.Key) int { return cmp.Compare(a.Path(), b.Path()) })
	return keys
}

// pair is the source and the other server of a Difference.
type pair struct{ source, server string }

// setLasting keeps the present differences that have lasted. It logs each one that is new
// among them, and each one that is over.
func (s *Sources) setLasting(now []Difference, at time.Time, log *slog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, before := map[pair]time.Time{}, map[pair]bool{}
	for _, d := range s.differences {
		before[pair{d.Source, d.Server}] = true
	}
	s.differences = nil
	for _, d := range now {
		between := pair{d.Source, d.Server}
		begun, known := s.since[between]
		if !known {
			begun = at
		}
		since[between] = begun
		if at.Sub(begun) < differLimit {
			continue
		}
		s.differences = append(s.differences, d)
		if !before[between] {
			log.Warn("servers of one store have different objects in a source", "source", d.Source, "differs", d.Message)
		}
		delete(before, between)
	}
	for between := range before {
		log.Info("a source is the same on both servers again, or the other has ended", "source", between.source, "server", between.server)
	}
	s.since = since
}

// Differences returns the differences that have lasted for differLimit, in order.
func (s *Sources) Differences() []Difference {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.differences
}

// Degraded names the first of the Differences, nil if there are none.
func (s *Sources) Degraded() error {
	var texts []string
	all := s.Differences()
	for _, d := range all[:min(len(all), maxNamed)] {
		texts = append(texts, fmt.Sprintf("source %s: %s", d.Source, d.Message))
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

var differsDesc = prometheus.NewDesc("portolan_source_differing_servers",
	"Servers of the store that have other objects in a source of configuration than this one.", []string{"source"}, nil)

// Describe implements prometheus.Collector.
func (s *Sources) Describe(out chan<- *prometheus.Desc) { out <- differsDesc }

// Collect implements prometheus.Collector.
func (s *Sources) Collect(out chan<- prometheus.Metric) {
	counts := map[string]int{}
	if s.States != nil {
		for _, state := range s.States() {
			counts[state.Name] = 0
		}
	}
	for _, d := range s.Differences() {
		counts[d.Source]++
	}
	for source, n := range counts {
		out <- prometheus.MustNewConstMetric(differsDesc, prometheus.GaugeValue, float64(n), source)
	}
}
