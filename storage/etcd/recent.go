package etcd

import (
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

const (
	// recentBytes bounds the remembered keys and values, and recentAge their age.
	recentBytes = 16 << 20
	recentAge   = time.Minute
)

// recent remembers the values that this Store wrote or read last, so that it can
// change one of them without reading it first. A remembered value is a guess at
// the stored one: only a transaction that compares the revisions may rely on it.
//
// A revision stands for one value in one life of one etcd only. So recent forgets
// everything when an answer comes from another cluster or another term of its
// leader, or shows an older revision than one that was seen before the request.
type recent struct {
	mu     sync.Mutex                         // guards the fields below
	values *simplelru.LRU[string, remembered] // by key; nil before the first answer
	bytes  int
	life   life
}

// life identifies one life of an etcd: the time from one restart or restore to the next.
type life struct{ cluster, term uint64 }

func lifeOf(h *etcdserverpb.ResponseHeader) life { return life{h.ClusterId, h.RaftTerm} }

// remembered is never modified.
type remembered struct {
	kv *mvccpb.KeyValue
	// own says that this Store wrote it.
	own bool
	at  time.Time // when it was read or written
}

func (r remembered) size() int { return len(r.kv.Key) + len(r.kv.Value) }

// checkLife looks at the header of an answer, and forgets everything if it is of another
// life. seen was the highest known revision at the request.
func (r *recent) checkLife(seen int64, h *etcdserverpb.ResponseHeader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := lifeOf(h); r.values == nil || now != r.life || h.Revision < seen {
		forgotten := func(_ string, one remembered) { r.bytes -= one.size() }
		r.values, _ = simplelru.NewLRU(math.MaxInt, forgotten) // fails for a size below 1 only
		r.bytes, r.life = 0, now
	}
}

// remember keeps a value, unless it has a newer one of the key. h is the header of the
// answer that had the value.
func (r *recent) remember(one remembered, h *etcdserverpb.ResponseHeader) {
	one.at = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.values == nil || lifeOf(h) != r.life || one.size() > recentBytes/8 {
		return
	}
	key := string(one.kv.Key)
	if known, ok := r.values.Peek(key); ok {
		if known.kv.ModRevision >= one.kv.ModRevision {
			return
		}
		r.bytes -= known.size()
	}
	r.values.Add(key, one)
	for r.bytes += one.size(); r.bytes > recentBytes; {
		r.values.RemoveOldest()
	}
}

// recall returns the remembered value of a key, or the zero remembered.
func (r *recent) recall(key string) remembered {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.values == nil {
		return remembered{}
	}
	one, ok := r.values.Get(key)
	if ok && time.Since(one.at) > recentAge {
		r.values.Remove(key)
		return remembered{}
	}
	return one
}
