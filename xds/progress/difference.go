package progress

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
	// differLimit is how long two servers may have different objects of a source before it
	// is told. A change reaches them one after another, and their reports later.
	differLimit = 3 * time.Second
	// maxDiffering bounds the objects that a server names as different.
	maxDiffering = 16
)

// Difference is what this server has of its sources, and another server has otherwise. Its
// JSON form is an API.
type Difference struct {
	// Source is that of this server; where this server has no such source, that of the other.
	Source string `json:"source"`
	// Server is the id of the other server.
	Server string `json:"server"`
	// Message says what differs.
	Message string `json:"message"`
	// Lacking says that this server has no such source.
	Lacking bool `json:"lacking,omitempty"`
}

// differing are the objects that two servers do not have alike, by their ids.
type differing struct{ here, there, changed []uint64 }

// compareContents compares two contents of a source by part.
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

// pairs match the sources of two servers: by their names, and the others in their order,
// since machines may have one directory at different paths. One of a pair may be nil.
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

// compare returns what differs between this server and the others, and notes in a report
// which of its objects the others do not have so.
func (b *Beside) compare(own string, report besideReport, facts *statuses.Facts) []Difference {
	if facts == nil {
		return nil
	}
	var out []Difference
	tell := map[string][]uint64{} // by source
	for other := range facts.Sources.Values() {
		if other.Replica == own {
			continue
		}
		for _, pair := range pairs(report.states, other.States) {
			here, there := pair[0], pair[1]
			switch {
			case here == nil:
				out = append(out, Difference{there.Name, other.Replica, fmt.Sprintf("this server has no such source, and %s has it", nameOf(other)), true})
			case there == nil:
				out = append(out, Difference{here.Name, other.Replica, nameOf(other) + " has no such source", false})
			case here.Digest != there.Digest || here.Objects != there.Objects:
				d := compareContents(func(part int) *status.Content {
					return report.contents[etcd.ContentKey(own, here.Name, part)]
				}, func(part int) *status.Content {
					return facts.Contents.Value(etcd.ContentPath(other.Replica, there.Name, part))
				})
				tell[here.Name] = slices.Concat(tell[here.Name], d.here, d.changed)
				if message := b.message(here.Name, d, there); message != "" {
					out = append(out, Difference{here.Name, other.Replica, nameOf(other) + " " + message, false})
				}
			case there.Problem != "":
				out = append(out, Difference{here.Name, other.Replica, nameOf(other) + " cannot read it: " + there.Problem, false})
			}
		}
	}
	for i := range report.states {
		state := &report.states[i]
		ids := tell[state.Name]
		slices.Sort(ids)
		for _, key := range b.keysOf(state.Name, slices.Compact(ids)) {
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

// nameOf is a server as people know it.
func nameOf(s *status.Sources) string {
	name, _, _ := strings.Cut(s.Replica, "/")
	return "the server " + name
}

// message says how the objects of a source differ, empty where they do not.
func (b *Beside) message(source string, d differing, there *status.SourceState) string {
	var parts []string
	add := func(what string, names []string, count int) {
		if count == 0 {
			return
		}
		names = names[:min(len(names), maxQuoted)]
		text := fmt.Sprintf("%s: %s", what, strings.Join(names, ", "))
		if more := count - len(names); len(names) == 0 {
			text = fmt.Sprintf("%s: %d", what, more)
		} else if more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, text)
	}
	add("different there", Names(b.keysOf(source, d.changed)), len(d.changed))
	add("only here", Names(b.keysOf(source, d.here)), len(d.here))
	var theirs []config.Key
	for _, path := range there.Differing {
		if key, ok := config.KeyOfPath(path); ok && slices.Contains(d.there, status.ObjectID(key)) {
			theirs = append(theirs, key)
		}
	}
	add("only there", Names(theirs), len(d.there))
	if len(parts) == 0 {
		return ""
	}
	text := "has other objects, " + strings.Join(parts, "; ")
	if there.Problem != "" {
		text += "; it cannot read them: " + there.Problem
	}
	return text
}

// keysOf are the published objects of a source that have some ids, in order.
func (b *Beside) keysOf(source string, ids []uint64) []config.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	var keys []config.Key
	for _, id := range ids {
		if one, ok := b.find(source, id); ok {
			keys = append(keys, one.key)
		}
	}
	slices.SortFunc(keys, func(a, b config.Key) int { return cmp.Compare(a.Path(), b.Path()) })
	return keys
}

// pair is what a Difference is between.
type pair struct{ source, server string }

// lasting keeps of the differences of now those that have lasted, and logs each that is
// new among them, and each that is over.
func (b *Beside) lasting(now []Difference, at time.Time, log *slog.Logger) {
	b.mu.Lock()
	defer b.mu.Unlock()
	since, before := map[pair]time.Time{}, map[pair]bool{}
	for _, d := range b.differences {
		before[pair{d.Source, d.Server}] = true
	}
	b.differences = nil
	for _, d := range now {
		between := pair{d.Source, d.Server}
		begun, known := b.since[between]
		if !known {
			begun = at
		}
		since[between] = begun
		if at.Sub(begun) < differLimit {
			continue
		}
		b.differences = append(b.differences, d)
		if !before[between] {
			log.Warn("servers of one store have different objects in a source", "source", d.Source, "differs", d.Message)
		}
		delete(before, between)
	}
	for between := range before {
		log.Info("a source is the same on both servers again, or the other has ended", "source", between.source, "server", between.server)
	}
	b.since = since
}

// Differences returns what other servers have had otherwise for some seconds, in order.
func (b *Beside) Differences() []Difference {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.differences
}

// Degraded says what other servers have otherwise, nil for nothing.
func (b *Beside) Degraded() error {
	var texts []string
	all := b.Differences()
	for _, d := range all[:min(len(all), maxQuoted)] {
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
func (b *Beside) Describe(out chan<- *prometheus.Desc) { out <- differsDesc }

// Collect implements prometheus.Collector.
func (b *Beside) Collect(out chan<- prometheus.Metric) {
	counts := map[string]int{}
	if b.States != nil {
		for _, state := range b.States() {
			counts[state.Name] = 0
		}
	}
	for _, d := range b.Differences() {
		counts[d.Source]++
	}
	for source, n := range counts {
		out <- prometheus.MustNewConstMetric(differsDesc, prometheus.GaugeValue, float64(n), source)
	}
}
