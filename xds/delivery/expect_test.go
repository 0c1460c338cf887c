package delivery_test

import (
	"testing"
	"time"
)

// TestWhatIsTakenHasItsChildrenAskedFor: after an ACK the server expects the client to
// request what the acknowledged resource needs, until it does, or for the limit.
func TestWhatIsTakenHasItsChildrenAskedFor(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		expects := func(when, typeURL string, want bool) {
			t.Helper()
			if got := p.sequencer.ExpectsSubscription(typeURL, p.now); got != want {
				t.Errorf("%s: %s is expected to be asked for: %v", when, typeURL, got)
			}
		}
		p.offer("LDS l: >r", "RDS r: 1")
		p.ask(lds)
		p.sends("the listener", "LDS +l")
		expects("it is on its way", rds, false)
		p.ack(lds)
		expects("nothing of the type was asked for yet", rds, true)
		p.ask(rds, "r")
		expects("it is asked for", rds, false)
		p.sends("the routes", "RDS +r")
		p.ack(rds)

		p.offer("LDS l: >r 2", "RDS r: 1")
		p.sends("a change that asks for nothing", "LDS +l", "RDS +r")
		p.ack(lds, rds)
		expects("it is asked for already", rds, false)

		both := []string{"LDS l: >r 2", "LDS m: >s", "RDS r: 1", "RDS s: 1"}
		p.offer(both...)
		p.sends("another listener", "LDS +m")
		p.ack(lds)
		expects("another name", rds, true)
		p.offer("LDS l: >r 2", "RDS r: 1", "RDS s: 1")
		expects("the listener is gone", rds, false)
		p.sends("it goes", "LDS -m")
		p.ack(lds)
		p.offer(both...)
		p.sends("it comes back", "LDS +m")
		p.ack(lds)
		expects("it was asked for by none", rds, true)
		p.passes(5 * time.Second)
		expects("the limit has passed", rds, false)
		expects("another type", eds, false)
	})
}
