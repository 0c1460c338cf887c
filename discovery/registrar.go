package discovery

import (
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// Registrar keeps something in the store for as long as the stream of a proxy lasts.
type Registrar interface {
	// Labels returns the labels that a proxy is to have until it is registered, so that policies which
	// select it by these hold from its first listener on; nil for those of its own.
	Labels(p *Proxy) labels.Instance
	// Join tells it of a stream whose proxy is known. It calls changed whenever the Standing of the
	// registration may have changed; changed does not block. Nor does Join.
	Join(p *Proxy, changed func()) Registration
}

// Registration is what a Registrar keeps for one stream. Its methods do not block.
type Registration interface {
	// Report says how the machine is, as its agent has found. The last report counts.
	Report(healthy bool, message string)
	// Ready says that the proxy has its listeners: others may send to it. It may be said again.
	Ready()
	// Depart says that the machine leaves for good: what is kept for it ends at once, and
	// comes back only with another stream.
	Depart(message string)
	// Standing returns what is to be told to the machine; false while nothing is decided. The zero
	// Standing says that nothing is kept for the proxy, nor was written for it by others.
	Standing() (s node.Standing, decided bool)
	// Leave says that the stream has ended. Nothing is called after it.
	Leave()
}
