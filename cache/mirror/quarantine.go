package mirror

import (
	"errors"
	"iter"
	"time"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Quarantined is a key of a mirrored tree whose kind is unknown, or whose value cannot
// be decoded. It is never modified.
type Quarantined struct {
	// Key is the whole key in etcd, Revision its mod revision, and Size the size of
	// the value in bytes.
	Key      string
	Revision int64
	Size     int
	// Fault says what is wrong.
	Fault *etcd.Fault
	// Since is when this cache first found the key at fault.
	Since time.Time
	// Serving says that the last good value of the key is still served.
	Serving bool
}

// foreign says that the key itself is at fault.
func (q *Quarantined) foreign() bool { return errors.Is(q.Fault, etcd.ErrForeignKey) }

// Quarantine is every key of the mirrored trees that the cache cannot hold, as of one
// revision. It is never modified. The zero Quarantine is empty.
type Quarantine struct {
	byKey   pmap.Map[*Quarantined]
	foreign int
}

// All iterates over the entries, in the order of their keys.
func (q Quarantine) All() iter.Seq[*Quarantined] { return q.byKey.Values() }

// Len is the number of entries.
func (q Quarantine) Len() int { return q.byKey.Len() }

// Foreign is the number of entries whose key is of no known kind. The other entries have
// undecodable values.
func (q Quarantine) Foreign() int { return q.foreign }

// with returns a quarantine with one more entry, which may replace one.
func (q Quarantine) with(one *Quarantined) Quarantine {
	q = q.without(one.Key)
	return Quarantine{q.byKey.Set(one.Key, one), q.foreign + foreignCount(one)}
}

func (q Quarantine) without(key string) Quarantine {
	if q.Len() == 0 {
		return q
	}
	return Quarantine{q.byKey.Delete(key), q.foreign - foreignCount(q.byKey.Value(key))}
}

func foreignCount(one *Quarantined) int {
	if one != nil && one.foreign() {
		return 1
	}
	return 0
}

// Quarantine returns the quarantine as of the newest revision.
func (c *Cache) Quarantine() Quarantine {
	if q := c.quarantine.Load(); q != nil {
		return *q
	}
	return Quarantine{}
}

// quarantineEntry returns the quarantine entry of a key: the known one, if nothing about it
// changed.
func (c *Cache) quarantineEntry(one *Quarantined, serving bool) *Quarantined {
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

// changeQuarantine puts a key at fault into quarantine, or removes a sound one, for
// which one is nil.
func (c *Cache) changeQuarantine(key string, one *Quarantined, serving bool) {
	before := c.Quarantine()
	after := before.without(key)
	if one != nil {
		after = after.with(c.quarantineEntry(one, serving))
	}
	c.setQuarantine(after)
}

// setQuarantine logs only the first foreign key: a newer server may write thousands.
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
