package delivery

import "github.com/portolan-mesh/portolan/xds/delivery/protocol"

// Subscription returns the subscription of a type, and wakes the type; nil if the
// sequencer does not have it.
func (s *Sequencer) Subscription(typeURL string) *protocol.Subscription {
	if t := s.typeState(typeURL); t != nil {
		return t.active()
	}
	return nil
}
