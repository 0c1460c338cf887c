package files

import (
	"sync"

	"github.com/fsnotify/fsnotify"
)

// notices has the paths that the system has notified of, until the follower takes them. A
// goroutine collects them and does nothing else: a Watcher may hold the lock that its Add
// takes while it sends.
type notices struct {
	wake chan struct{} // holds a token while there are notices

	mu    sync.Mutex // guards the fields below
	names []string
	known map[string]bool
	lost  bool // there may be more
}

// maxNotices bounds the kept paths: reading the whole tree costs less than handling more.
const maxNotices = 100_000

func newNotices() *notices { return &notices{wake: make(chan struct{}, 1), known: map[string]bool{}} }

// collect receives the events and errors of a watcher until it is closed.
func (n *notices) collect(from *fsnotify.Watcher) {
	for {
		select {
		case e, open := <-from.Events:
			if !open {
				return
			}
			n.add(e.Name, false)
		case _, open := <-from.Errors:
			if !open {
				return
			}
			n.add("", true)
		}
	}
}

func (n *notices) add(name string, lost bool) {
	n.mu.Lock()
	switch {
	case lost, len(n.names) >= maxNotices:
		n.lost = true
	case !n.known[name]:
		n.known[name] = true
		n.names = append(n.names, name)
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take returns the paths, each once, and whether there may have been others.
func (n *notices) take() (names []string, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	names, lost = n.names, n.lost
	n.names, n.lost, n.known = nil, false, map[string]bool{}
	return names, lost
}
