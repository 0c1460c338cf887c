package rest

import (
	"math"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/portolan-mesh/portolan/cache"
)

// frameKey identifies the encoded event that watches in one API version and shape get for
// an object of a snapshot. goneAt is the revision of a removal.
type frameKey struct {
	snapshot weak.Pointer[cache.Snapshot]
	path     string
	version  string
	kind     watch.EventType
	shape    shape
	goneAt   int64
}

// frame is the text of an event, or of an object of a list. It is never modified.
type frame struct {
	key  frameKey
	once sync.Once
	text []byte
	err  error

	// users and size are guarded by the mutex of frames.
	users int
	size  int64 // as counted in bytes; 0 before it is encoded
}

// frames holds the encoded events that watches are sending. Watches that send the same
// event share one text, which is encoded once. An unused text stays for a moment, since
// the next watch is about to use it.
type frames struct {
	limit int64         // of bytes
	free  func() bool   // ends a watch that holds a frame; false if there is none
	turns chan struct{} // holds a token for each frame that is being encoded
	paces chan struct{} // holds a token for each watch that is busy

	mu    sync.Mutex // guards the fields below
	all   map[frameKey]*frame
	bytes int64
	idle  *simplelru.LRU[frameKey, *frame] // frames that nobody uses
	swept bool                             // a timer runs that drops the idle ones
}

// frameLinger is how long an unused frame stays.
const frameLinger = time.Second

func newFrames(limit int64, free func() bool) *frames {
	idle, _ := simplelru.NewLRU[frameKey, *frame](math.MaxInt, nil) // fails for a size below 1 only
	return &frames{
		limit: limit, free: free, turns: make(chan struct{}, runtime.GOMAXPROCS(0)), paces: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		all: map[frameKey]*frame{}, idle: idle,
	}
}

// get returns a frame, and encodes it if it is unknown. The caller gives it back by put.
func (f *frames) get(key frameKey, encode func() ([]byte, error)) (*frame, error) {
	f.mu.Lock()
	fr := f.all[key]
	if fr == nil {
		fr = &frame{key: key}
		f.all[key] = fr
	}
	if fr.users++; fr.users == 1 {
		f.idle.Remove(key)
	}
	f.mu.Unlock()
	fr.once.Do(func() {
		fr.text, fr.err = f.encode(encode)
		f.mu.Lock()
		fr.size = int64(len(fr.text))
		f.bytes += fr.size
		f.mu.Unlock()
		f.shrink()
	})
	if fr.err != nil {
		f.put(fr)
		return nil, fr.err
	}
	return fr, nil
}

// encode limits how many encode at the same time. So thousands of large requests leave
// processor time to others.
func (f *frames) encode(encode func() ([]byte, error)) ([]byte, error) {
	f.turns <- struct{}{}
	defer func() { <-f.turns }()
	return encode()
}

// paceLimit is how long a busy watch may keep others waiting. After that its client is
// slow to read, and the watch does no work.
const paceLimit = 2 * time.Millisecond

// pace waits until few other watches are busy; the caller calls done when it is no
// longer busy. When thousands of watches send a change they take turns on half of the
// processors, and leave the others to the rest of the server.
func (f *frames) pace() (done func()) {
	f.paces <- struct{}{}
	release := sync.OnceFunc(func() { <-f.paces })
	timer := time.AfterFunc(paceLimit, release)
	return func() { timer.Stop(); release() }
}

func (f *frames) put(fr *frame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fr.users--; fr.users > 0 {
		return
	}
	f.idle.Add(fr.key, fr)
	if !f.swept {
		f.swept = true
		time.AfterFunc(frameLinger, f.sweep)
	}
}

// shrink drops unused frames until the rest is within the limit. If that is not enough
// it ends a slow watch; if none is slow it tries again later.
func (f *frames) shrink() {
	f.mu.Lock()
	for f.bytes > f.limit && f.idle.Len() > 0 {
		f.forgetOldest()
	}
	over := f.bytes > f.limit
	f.mu.Unlock()
	if over && !f.free() {
		time.AfterFunc(slowAfter, f.shrink) // by then one of them is slow, or they have gone
	}
}

// sweep drops all unused frames.
func (f *frames) sweep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.swept = false
	for f.idle.Len() > 0 {
		f.forgetOldest()
	}
}

// forgetOldest must be called with mu held.
func (f *frames) forgetOldest() {
	key, fr, _ := f.idle.RemoveOldest()
	f.bytes -= fr.size
	delete(f.all, key)
}

// held returns the bytes of all frames.
func (f *frames) held() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes
}
