package progress

import (
	"maps"
	"sync"
	"time"
)

// Departures are the proxies whose machines have said that they leave for good, so that nobody expects
// them back. It is safe for concurrent use; the zero Departures is empty.
type Departures struct {
	mu    sync.Mutex // guards nodes
	nodes map[string]time.Time
}

// Add notes that a proxy leaves.
func (d *Departures) Add(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nodes == nil {
		d.nodes = map[string]time.Time{}
	}
	d.nodes[node] = time.Now()
}

// Return notes that a proxy is back.
func (d *Departures) Return(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.nodes, node)
}

// Nodes returns when each left, and forgets those that nobody would expect any more.
func (d *Departures) Nodes() map[string]time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.nodes, func(_ string, at time.Time) bool { return time.Since(at) > returnWithin })
	return maps.Clone(d.nodes)
}
