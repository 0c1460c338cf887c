package etcd

import (
	"container/list"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

const (
	// recentBytes bounds the keys and values that are remembered, and recentAge
	// how long.
	recentBytes = 16 << 20
	recentAge   = time.Minute
)

// recent remembers the values that this Store wrote or read last, so that a
// change of one of them need not read it first. What is remembered is a guess at
// what is stored: nothing may be decided by it but a transaction that compares
// the revisions.
//
// A revision stands for one value in one life of one etcd only. So everything is
// forgotten when an answer comes from another cluster or another term of its
// leader, or shows an older revision than one that was seen before the request.
type recent struct {
	mu    sync.Mutex // guards the fields below
	byKey map[string]*list.Element
	order list.List // of remembered, the latest used first
	bytes int
	life  life
}

// life tells one life of an etcd from another.
type life struct{ cluster, term uint64 }

func lifeOf(h *etcdserverpb.ResponseHeader) life { return life{h.ClusterId, h.RaftTerm} }

// remembered is a value that is not modified.
type remembered struct {
	kv *mvccpb.KeyValue
	// own says that this Store has written it.
	own bool
	at  time.Time // when it was read or written
}

func (r remembered) size() int { return len(r.kv.Key) + len(r.kv.Value) }

// meet takes note of the header of an answer to a request that was made when
// the revision seen was the highest.
func (r *recent) meet(seen int64, h *etcdserverpb.ResponseHeader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := lifeOf(h); now != r.life || h.Revision < seen {
		r.byKey, r.bytes, r.life = map[string]*list.Element{}, 0, now
		r.order.Init()
	}
}

// remember keeps a value, unless a newer one of its key is there. h is the header
// of the answer that it goes with.
func (r *recent) remember(one remembered, h *etcdserverpb.ResponseHeader) {
	one.at = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if lifeOf(h) != r.life || one.size() > recentBytes/8 {
		return
	}
	key := string(one.kv.Key)
	if e, ok := r.byKey[key]; ok {
		if e.Value.(remembered).kv.ModRevision >= one.kv.ModRevision {
			return
		}
		r.forget(e)
	}
	r.byKey[key] = r.order.PushFront(one)
	for r.bytes += one.size(); r.bytes > recentBytes; {
		r.forget(r.order.Back())
	}
}

// forget must be called with mu held.
func (r *recent) forget(e *list.Element) {
	one := r.order.Remove(e).(remembered)
	r.bytes -= one.size()
	delete(r.byKey, string(one.kv.Key))
}

// recall returns what is remembered of a key, the zero remembered for nothing.
func (r *recent) recall(key string) remembered {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.byKey[key]
	if !ok {
		return remembered{}
	}
	one := e.Value.(remembered)
	if time.Since(one.at) > recentAge {
		r.forget(e)
		return remembered{}
	}
	r.order.MoveToFront(e)
	return one
}
