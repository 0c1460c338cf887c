package mirror

import (
	"errors"
	"iter"
	"time"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Quarantined is a key of the trees of etcd that are mirrored which is not that
// of a known object or of a row beside the objects, or whose value cannot be
// read. It is never modified.
type Quarantined struct {
	// Key is the whole key in etcd, Revision its mod revision, and Size that of
	// the value in bytes.
	Key      string
	Revision int64
	Size     int
	// Fault is what is wrong with it.
	Fault *etcd.Fault
	// Since is when this cache first met the key at fault.
	Since time.Time
	// Serving says that the last good value of the key goes on being served.
	Serving bool
}

// foreign says that the key itself is at fault.
func (q *Quarantined) foreign() bool { return errors.Is(q.Fault, etcd.ErrForeignKey) }

// Quarantine is everything in the trees mirrored that is nothing of the cache, as
// of one revision. The zero Quarantine is empty; none is ever modified.
type Quarantine struct {
	byKey   pmap.Map[*Quarantined]
	foreign int
}

// All are those in it, in the order of their keys.
func (q Quarantine) All() iter.Seq[*Quarantined] { return q.byKey.Values() }

// Len is how many there are.
func (q Quarantine) Len() int { return q.byKey.Len() }

// Foreign is how many are there for their keys, which are of no known kind or
// of none at all; the others have values that cannot be read.
func (q Quarantine) Foreign() int { return q.foreign }

// with returns a quarantine with one more, or another in its place.
func (q Quarantine) with(one *Quarantined) Quarantine {
	q = q.without(one.Key)
	return Quarantine{q.byKey.Set(one.Key, one), q.foreign + foreigners(one)}
}

// without returns a quarantine without a key.
func (q Quarantine) without(key string) Quarantine {
	if q.Len() == 0 {
		return q
	}
	return Quarantine{q.byKey.Delete(key), q.foreign - foreigners(q.byKey.Value(key))}
}

func foreigners(one *Quarantined) int {
	if one != nil && one.foreign() {
		return 1
	}
	return 0
}

// Quarantine is what cannot be served, as of the newest revision. It costs
// nothing to ask for.
func (c *Cache) Quarantine() Quarantine {
	if q := c.quarantine.Load(); q != nil {
		return *q
	}
	return Quarantine{}
}

// confine makes an entry of what is wrong with a key. What is known of it
// already stays.
func (c *Cache) confine(one *Quarantined, serving bool) *Quarantined {
	out := *one
	out.Since, out.Serving = c.o.Now(), serving
	known := c.Quarantine().byKey.Value(one.Key)
	if known == nil {
		return &out
	}
	out.Since = known.Since
	if known.Revision == out.Revision && known.Size == out.Size && known.Serving == out.Serving {
		return known
	}
	return &out
}

// changeQuarantine puts a key in quarantine, where one is at fault, or takes it out.
func (c *Cache) changeQuarantine(key string, one *Quarantined, serving bool) {
	before := c.Quarantine()
	after := before.without(key)
	if one != nil {
		after = after.with(c.confine(one, serving))
	}
	c.setQuarantine(after)
}

// setQuarantine tells whoever reads the log when the first foreign key comes,
// and not of each: a newer server may write thousands.
func (c *Cache) setQuarantine(q Quarantine) {
	if q.foreign > 0 && c.Quarantine().foreign == 0 {
		c.o.Log.Warn("there are keys in etcd that are of no kind known here: they are passed over; see portolan store quarantine list",
			"keys", q.foreign, "first", q.firstForeign().Key)
	}
	c.quarantine.Store(&q)
}

func (q Quarantine) firstForeign() *Quarantined {
	for one := range q.All() {
		if one.foreign() {
			return one
		}
	}
	return nil
}
