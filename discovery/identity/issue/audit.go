package issue

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache/rest/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Notes keeps records of what is no object of the store.
type Notes interface {
	// Note keeps one record of several things that were made at one time.
	Note(ctx context.Context, at time.Time, origin storage.Origin, made []config.Key) error
}

const (
	// noteInterval is how often what was issued is written: at most one record in this
	// time, however many join at once.
	noteInterval = time.Second
	// mostInRecord bounds the certificates of a record, and mostWaiting those that wait
	// for a store that is away.
	mostInRecord, mostWaiting = 100, 10_000
)

// note is one certificate that was issued.
type note struct {
	at         time.Time
	who        identity.Identity
	serial     string
	ends       time.Time
	proof      string
	from, tool string
}

// audit writes what was issued into the history, in the background: to wait for the store
// with each certificate would make it the bound of a mesh that joins at once. The log has
// each certificate as well.
type audit struct {
	notes  Notes
	logger *slog.Logger
	lost   prometheus.Counter

	mu      sync.Mutex
	waiting []note
	some    chan struct{} // has an element while something waits
}

func newAudit(notes Notes, logger *slog.Logger) *audit {
	return &audit{
		notes: notes, logger: logger, some: make(chan struct{}, 1),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "portolan_certificates_unrecorded_total",
			Help: "Certificates that were issued and are in the log, but not in the history: the store was away for too long."}),
	}
}

func (a *audit) add(n note) {
	if a.notes == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) == mostWaiting {
		a.lost.Inc()
		return
	}
	a.waiting = append(a.waiting, n)
	select {
	case a.some <- struct{}{}:
	default:
	}
}

// Run writes what was issued into the history until ctx ends, and what is left then. It
// returns nil.
func (i *Issuer) Run(ctx context.Context) error { return i.audit.run(ctx) }

func (a *audit) run(ctx context.Context) error {
	ticker := time.NewTicker(noteInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteInterval)
			defer cancel()
			a.write(last)
			return nil
		case <-a.some:
		}
		a.write(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// write writes all that waits. What the store does not take waits on.
func (a *audit) write(ctx context.Context) {
	for {
		a.mu.Lock()
		batch := a.waiting[:min(len(a.waiting), mostInRecord)]
		a.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		origin, made := recordOf(batch)
		if err := a.notes.Note(ctx, batch[len(batch)-1].at, origin, made); err != nil {
			a.logger.Warn("certificates that were issued are not in the history yet", "certificates", len(batch), "err", err)
			select {
			case a.some <- struct{}{}: // it is tried again
			default:
			}
			return
		}
		a.mu.Lock()
		a.waiting = a.waiting[len(batch):]
		a.mu.Unlock()
	}
}

// recordOf is the record of some certificates.
func recordOf(batch []note) (origin storage.Origin, made []config.Key) {
	var texts []string
	seen := map[config.Key]bool{}
	for _, n := range batch {
		key := config.Key{Kind: config.GroupVersionKind{Group: "portolan.io", Version: "v1", Kind: certificate.Kind}, Namespace: n.who.Namespace, Name: n.who.ServiceAccount}
		if !seen[key] {
			seen[key], made = true, append(made, key)
		}
		text := fmt.Sprintf("serial %s until %s, by %s", n.serial, n.ends.UTC().Format(time.RFC3339), n.proof)
		if len(batch) > 1 {
			text = fmt.Sprintf("%s/%s: %s from %s", n.who.Namespace, n.who.ServiceAccount, text, n.from)
		}
		texts = append(texts, text)
	}
	origin = storage.Origin{User: "portolan", Tool: "certificate authority", Message: strings.Join(texts, "; ")}
	if len(batch) == 1 {
		origin.User, origin.Address, origin.Tool = batch[0].who.String(), batch[0].from, batch[0].tool
	}
	return origin, made
}
