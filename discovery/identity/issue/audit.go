package issue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/discovery/identity/certificate"
	"github.com/portolan-mesh/portolan/discovery/identity/journal"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// mostInRecord bounds the certificates in one record, mostWaiting those that wait while the
// store is away.
const mostInRecord, mostWaiting = 100, 10_000

// auditPatience is how long an issued certificate waits until it is in the history. A healthy
// store is faster. When it is over, the workload gets its certificate without a record.
const auditPatience = 2 * time.Second

// note is an issued certificate.
type note struct {
	at         time.Time
	who        identity.Identity
	serial     string
	ends       time.Time
	proof      string
	from, tool string
	written    chan struct{} // closed when the history has it
}

// audit gathers issued certificates for the history. One record holds several: with one for
// each, the store would limit how fast a mesh joins. The log has each certificate as well.
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

// add queues a certificate for the history. It returns a channel that is closed when the
// history has it, nil if the queue is full.
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
	default: // already awake
	}
	return n.written
}

// await waits until the history has a certificate, at most auditPatience. It returns false if
// that time is over, and the error of ctx if ctx ends first.
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

// Issued returns the source of issued certificates that are not in the history yet. A journal
// must write them, since Issue waits for that. The source keeps a bounded number.
func (i *Issuer) Issued() journal.Source { return i.audit }

// Wake implements journal.Source.
func (a *audit) Wake() <-chan struct{} { return a.wake }

// Next implements journal.Source. A record holds all certificates since the last call, up to
// mostInRecord.
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

// earned says in the history what earned a certificate.
var earned = map[string]string{
	byCredential: "by credential", byCertificate: "by certificate", byExpired: "renewed with an expired certificate",
}

func recordOf(batch []note) (origin storage.Origin, made []config.Key) {
	var texts []string
	seen := map[config.Key]bool{}
	for _, n := range batch {
		key := config.Key{Kind: config.GroupVersionKind{Group: "portolan.io", Version: "v1", Kind: certificate.Kind}, Namespace: n.who.Namespace, Name: n.who.ServiceAccount}
		if !seen[key] {
			seen[key], made = true, append(made, key)
		}
		text := fmt.Sprintf("serial %s until %s, %s", n.serial, n.ends.UTC().Format(time.RFC3339), earned[n.proof])
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
