package registration

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// reportersDue returns the reports that are to be written of entries that no registration has
// made: those at an address of the proxy, in its namespace and network, whose service account it
// has proved. The caller holds mu.
func (r *Registrar) reportersDue(at entriesAt) []work {
	var out []work
	for s := range r.reporters {
		if time.Since(s.toldAt) < interval && !s.report.urgent(s.toldHealthy) {
			continue
		}
		found, why := r.entriesOf(s, at)
		if len(found) == 0 && why != s.unheard {
			r.o.Logger.Warn("a proxy reports the health of no WorkloadEntry", "proxy", s.proxy.ID, "err", why)
		}
		s.unheard = why
		for _, entry := range found {
			now := told{entry.UID, *s.report}
			if s.told[entry.Key()] == now || s.departed && !health.Checked(entry.Annotations) {
				continue
			}
			s.toldAt, s.toldHealthy = time.Now(), s.report.healthy
			out = append(out, func(ctx context.Context) { r.tellOf(ctx, s, entry.Key(), now) })
		}
	}
	return out
}

// entriesAt finds entries that no registration has made, by namespace and address. It reads a namespace
// once.
type entriesAt struct {
	entries func(namespace string) iter.Seq[*config.Config]
	known   map[string]map[string][]*config.Config
}

func (e entriesAt) namespace(name string) map[string][]*config.Config {
	if _, ok := e.known[name]; !ok {
		e.known[name] = byAddress(e.entries(name))
	}
	return e.known[name]
}

func byAddress(entries iter.Seq[*config.Config]) map[string][]*config.Config {
	out := map[string][]*config.Config{}
	for entry := range entries {
		if entry.Annotations[NodeAnnotation] == "" {
			address := entry.Spec.(*networking.WorkloadEntry).GetAddress()
			out[address] = append(out[address], entry)
		}
	}
	return out
}

// entriesOf returns the entries that are of a proxy, or why there are none.
func (r *Registrar) entriesOf(s *stream, at entriesAt) (out []*config.Config, why string) {
	why = "no WorkloadEntry of its namespace and network has its address"
	in := at.namespace(s.proxy.Namespace)
	for _, ip := range s.proxy.IPAddresses {
		for _, entry := range in[ip] {
			spec := entry.Spec.(*networking.WorkloadEntry)
			if spec.GetNetwork() != s.proxy.Network {
				continue
			}
			account := cmp.Or(spec.GetServiceAccount(), schema.DefaultServiceAccount)
			switch proved, err := proves(s.proxy, account, r.o.Unproved); {
			case err != nil:
				why = err.Error()
			case !proved:
				why = entry.Key().String() + " is for the service account " + account + ", and its identity is " + s.proxy.Identity
			default:
				out = append(out, entry)
			}
		}
	}
	if len(out) > 0 {
		why = ""
	}
	return out, why
}

// tellOf writes a report of an entry that the stream did not register. What fails is tried again.
func (r *Registrar) tellOf(ctx context.Context, s *stream, key config.Key, now told) {
	err := r.tell(ctx, key, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.o.Logger.Warn("the health of a machine was not written, it will be tried again", "key", key.String(), "err", err)
		return
	}
	if s.told == nil {
		s.told = map[config.Key]told{}
	}
	s.told[key] = now
}

// tell writes a report of an entry, unless that is gone.
func (r *Registrar) tell(ctx context.Context, key config.Key, now told) error {
	_, err := r.o.Health.SetHealth(ctx, storage.HealthUpdate{Key: key, UID: now.uid, Report: &health.Report{Healthy: now.healthy, Message: now.message}})
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrConflict) {
		return nil // the next entry of the name has another UID
	}
	if err == nil {
		r.metrics.reports.Inc()
	}
	return err
}
