package delivery

import "github.com/portolan-mesh/portolan/xds/delivery/protocol"

// Subscription returns that of a type, which is not idle from then on; nil for one
// that was never taken in.
func (s *Sequencer) Subscription(typeURL string) *protocol.Subscription {
	if t := s.typeState(typeURL); t != nil {
		return t.active()
	}
	return nil
}
