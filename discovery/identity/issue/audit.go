package issue

import (
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

// note is one certificate that was issued.
type note struct {
	at         time.Time
	who        identity.Identity
	serial     string
	ends       time.Time
	proof      string
	from, tool string
}

// audit gathers what was issued for the history: to wait for the store with each certificate
// would make it the bound of a mesh that joins at once. The log has each certificate as well.
type audit struct {
	lost prometheus.Counter

	mu      sync.Mutex
	waiting []note
}

func newAudit() *audit {
	return &audit{
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "portolan_certificates_unrecorded_total",
			Help: "Certificates that were issued and are in the log, but not in the history: the store was away for too long."}),
	}
}

func (a *audit) add(n note) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) == mostWaiting {
		a.lost.Inc()
		return
	}
	a.waiting = append(a.waiting, n)
}

// Issued is what was issued and is not in the history yet. The issuer keeps a bounded number
// of certificates for it.
func (i *Issuer) Issued() journal.Source { return i.audit }

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
	return journal.Record{At: batch[len(batch)-1].at, Origin: origin, About: made}, true
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
