package issue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache/rest/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/journal"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// mostInRecord bounds the certificates of a record, and mostWaiting those that wait for a
// store that is away.
const mostInRecord, mostWaiting = 100, 10_000

// auditPatience is how long a certificate waits until the history has it: longer than a store
// takes that is there. Known workloads get certificates also while it is away.
const auditPatience = 2 * time.Second

// note is one certificate that was issued.
type note struct {
	at         time.Time
	who        identity.Identity
	serial     string
	ends       time.Time
	proof      string
	from, tool string
	written    chan struct{} // closed when the history has it
}

// audit gathers what was issued for the history: a record for each certificate would make the
// store the bound of a mesh that joins at once. The log has each certificate as well.
type audit struct {
	lost prometheus.Counter
	wake chan struct{} // has a value when something waits

	mu      sync.Mutex
	waiting []note
}

func newAudit() *audit {
	return &audit{
		wake: make(chan struct{}, 1),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "portolan_certificates_unrecorded_total",
			Help: "Certificates that were issued and are in the log, but not in the history: the store was away for too long."}),
	}
}

// add has the history get a certificate. It returns what is closed when the history has it,
// and nil where that will not be.
func (a *audit) add(n note) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) == mostWaiting {
		a.lost.Inc()
		return nil
	}
	n.written = make(chan struct{})
	a.waiting = append(a.waiting, n)
	select {
	case a.wake <- struct{}{}:
	default: // it has one
	}
	return n.written
}

// await waits a bounded time for the history to have a certificate. It returns false if the
// history does not have it by then, and the error of ctx if that ends first.
func (a *audit) await(ctx context.Context, written <-chan struct{}) (bool, error) {
	if written == nil {
		return false, nil
	}
	limit := time.NewTimer(auditPatience)
	defer limit.Stop()
	select {
	case <-written:
		return true, nil
	case <-limit.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Issued is what was issued and is not in the history yet: have a journal write it, for which
// the issuer waits with each certificate. It keeps a bounded number of them.
func (i *Issuer) Issued() journal.Source { return i.audit }

// Wake implements journal.Source.
func (a *audit) Wake() <-chan struct{} { return a.wake }

// Next implements journal.Source: what was issued since the last time is one record.
func (a *audit) Next(time.Time, bool) (journal.Record, bool) {
	a.mu.Lock()
	batch := a.waiting[:min(len(a.waiting), mostInRecord)]
	a.waiting = a.waiting[len(batch):]
	a.mu.Unlock()
	if len(batch) == 0 {
		return journal.Record{}, false
	}
	origin, made := recordOf(batch)
	return journal.Record{At: batch[len(batch)-1].at, Origin: origin, About: made, Written: func() {
		for _, n := range batch {
			close(n.written)
		}
	}}, true
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
