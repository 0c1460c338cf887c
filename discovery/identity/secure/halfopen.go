package secure

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// halfOpen bounds the handshakes under way. Beyond the limit, the source with the most of them
// loses its oldest. An honest client needs milliseconds, so it is not the oldest of a source
// that stalls; other sources are not touched.
type halfOpen struct {
	limit int

	mu      sync.Mutex // guards the fields below
	closed  bool
	open    map[net.Conn]*list.Element // element in the list of its source
	sources map[netip.Prefix]*list.List
}

// half is a connection whose handshake is under way.
type half struct {
	conn   net.Conn
	source netip.Prefix
}

func newHalfOpen(limit int) *halfOpen {
	return &halfOpen{limit: limit, open: map[net.Conn]*list.Element{}, sources: map[netip.Prefix]*list.List{}}
}

// add returns false if the listener is closed.
func (h *halfOpen) add(c net.Conn) bool {
	source := sourceOf(c.RemoteAddr())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	of := h.sources[source]
	if of == nil {
		of = list.New()
		h.sources[source] = of
	}
	h.open[c] = of.PushBack(half{c, source})
	if len(h.open) > h.limit {
		h.evict()
	}
	return true
}

// evict closes the oldest connection of the source that has the most.
func (h *halfOpen) evict() {
	var most *list.List
	for _, of := range h.sources {
		if most == nil || of.Len() > most.Len() {
			most = of
		}
	}
	oldest := most.Front().Value.(half)
	h.drop(oldest.conn)
	_ = oldest.conn.Close()
}

func (h *halfOpen) remove(c net.Conn) (evicted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open[c] == nil {
		return true
	}
	h.drop(c)
	return false
}

func (h *halfOpen) drop(c net.Conn) {
	element := h.open[c]
	delete(h.open, c)
	source := element.Value.(half).source
	of := h.sources[source]
	of.Remove(element)
	if of.Len() == 0 {
		delete(h.sources, source)
	}
}

// closeAll closes all connections, and refuses later ones.
func (h *halfOpen) closeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for c := range h.open {
		_ = c.Close()
	}
}

// sourceOf returns the network that one attacker typically has: an IPv4 address, or a /64 of
// IPv6.
func sourceOf(remote net.Addr) netip.Prefix {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	source, _ := ip.Prefix(bits) // fails only for too many bits
	return source
}
