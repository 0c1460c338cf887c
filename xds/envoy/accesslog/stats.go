package accesslog

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	statsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Unit is what a Stat measures.
type Unit int

// The units. All but Counter make histograms.
const (
	Counter Unit = iota
	Milliseconds
	Bytes
)

// Stat is a statistic of a proxy.
type Stat struct {
	Name string
	// Value is a command whose value is added, or measured. A Counter without one counts.
	Value string
	Unit  Unit
	Tags  []Tag
}

// Tag is a tag of a Stat: its name, and a format.
type Tag struct{ Name, Value string }

// Stats makes an access log that writes statistics, whose names have a prefix. Prometheus reads
// them as envoy_PREFIX_NAME.
func Stats(prefix string, stats []Stat, f Filter) *accesslogv3.AccessLog {
	out := &statsv3.Config{StatsScope: &typev3.Scope{Prefix: prefix}}
	for _, s := range stats {
		stat := &statsv3.Config_Stat{Name: s.Name}
		for _, t := range s.Tags {
			stat.Tags = append(stat.Tags, &statsv3.Config_Tag{Name: t.Name, ValueFormat: t.Value})
		}
		switch {
		case s.Unit == Counter && s.Value == "":
			out.Counters = append(out.Counters, &statsv3.Config_Counter{Stat: stat, ValueFixed: wrapperspb.UInt64(1)})
		case s.Unit == Counter:
			out.Counters = append(out.Counters, &statsv3.Config_Counter{Stat: stat, ValueFormat: s.Value})
		default:
			unit := statsv3.Config_Histogram_Milliseconds
			if s.Unit == Bytes {
				unit = statsv3.Config_Histogram_Bytes
			}
			out.Histograms = append(out.Histograms, &statsv3.Config_Histogram{Stat: stat, Unit: unit, ValueFormat: s.Value})
		}
	}
	return accessLog("envoy.access_loggers.stats", out, f)
}
