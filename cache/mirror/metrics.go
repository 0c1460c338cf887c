package mirror

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// metrics say how far this replica may be behind the store, and how often it listed and
// checked.
type metrics struct {
	relists *prometheus.CounterVec
	checks  *prometheus.CounterVec
	epochs  prometheus.Counter
}

func newMetrics(r prometheus.Registerer, c *Cache) *metrics {
	m := &metrics{
		relists: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_cache_relists_total",
			Help: "Lists of the whole configuration after the first, by what made them necessary."}, []string{"reason"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "portolan_cache_checks_total",
			Help: "Comparisons of the cache with the store at the same revision, by outcome; one that is different is a bug and is healed by a list."}, []string{"outcome"}),
		epochs: prometheus.NewCounter(prometheus.CounterOpts{Name: "portolan_cache_epochs_total",
			Help: "How often the store turned out to be another one or to have gone back, as after a restore."}),
	}
	// From 0 on, so that an alert sees the first increase.
	for _, outcome := range []string{checkEqual, checkDifferent, checkFailed} {
		m.checks.WithLabelValues(outcome)
	}
	for _, cause := range []error{rpctypes.ErrCompacted, errWentBack, errDiverged, nil} {
		m.relists.WithLabelValues(reasonOf(cause))
	}
	if r == nil {
		return m
	}
	r.MustRegister(m.relists, m.checks, m.epochs,
		gauge("portolan_cache_staleness_seconds", "Every write acknowledged longer ago is in the cache; up to the progress interval in an idle cache.",
			func() float64 { return c.Staleness().Seconds() }),
		gauge("portolan_cache_revision", "Revision of the store that the cache shows.",
			func() float64 { return float64(c.Snapshot().Revision()) }),
		gauge("portolan_cache_handled_lag", "Revisions that the handlers are behind the cache.",
			func() float64 { return float64(c.Lag()) }),
		gauge("portolan_cache_objects", "Objects in the cache.",
			func() float64 { return float64(c.Snapshot().Configs().Len()) }),
		gauge("portolan_cache_broken_values", "Values in the store that cannot be decoded; their last good objects are served.",
			func() float64 { q := c.Quarantine(); return float64(q.Len() - q.Foreign()) }),
		gauge("portolan_cache_foreign_keys", "Keys of the configuration in the store that are of no kind known here; they are passed over.",
			func() float64 { return float64(c.Quarantine().Foreign()) }),
		gauge("portolan_store_newer", "Whether a newer server has written to the store, so that this one only reads it: 1 or 0.", func() float64 {
			if c.checkFormat() != nil {
				return 1
			}
			return 0
		}),
		gauge("portolan_store_reachable", "Whether etcd answers: 1 or 0.", func() float64 {
			if c.Reachable() {
				return 1
			}
			return 0
		}))
	return m
}

// The outcomes of comparisons.
const checkEqual, checkDifferent, checkFailed = "equal", "different", "failed"

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// reasonOf returns the cause of a new list, as a label.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return "compacted"
	case errors.Is(err, errWentBack):
		return "epoch"
	case errors.Is(err, errDiverged):
		return "diverged"
	default:
		return "other"
	}
}
