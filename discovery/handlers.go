package discovery

import (
	"slices"
	"sync"

	"github.com/portolan-mesh/portolan/cache"
)

// Handlers keeps the handlers that were appended to a registry. The zero
// Handlers is empty and open.
type Handlers struct {
	mu        sync.Mutex // guards the fields below
	closed    bool
	services  []ServiceHandler
	workloads []WorkloadHandler
}

// AppendServiceHandler adds a handler for services. It panics after Close, since the wiring is
// wrong then.
func (h *Handlers) AppendServiceHandler(f ServiceHandler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mustBeOpen()
	h.services = append(slices.Clip(h.services), f)
}

// AppendWorkloadHandler is like AppendServiceHandler, for workload instances.
func (h *Handlers) AppendWorkloadHandler(f WorkloadHandler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mustBeOpen()
	h.workloads = append(slices.Clip(h.workloads), f)
}

func (h *Handlers) mustBeOpen() {
	if h.closed {
		panic("discovery: handler appended after Run")
	}
}

// Close ends the time in which handlers may be appended. Registries call it when Run begins.
func (h *Handlers) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

// ServicesChanged calls the service handlers, in the order in which they were appended, for
// each service that changed.
func (h *Handlers) ServicesChanged(change Change) {
	h.mu.Lock()
	handlers := h.services
	h.mu.Unlock()
	if len(handlers) == 0 {
		return
	}
	change.EachService(func(old, curr *Service, event cache.Event) {
		for _, f := range handlers {
			f(old, curr, event)
		}
	})
}

// WorkloadChanged calls the workload handlers, in the order in which they were
// appended.
func (h *Handlers) WorkloadChanged(w *WorkloadInstance, event cache.Event) {
	h.mu.Lock()
	handlers := h.workloads
	h.mu.Unlock()
	for _, f := range handlers {
		f(w, event)
	}
}
