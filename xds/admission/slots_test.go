package admission_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/portolan-mesh/portolan/xds/admission"
)

// gate makes a gate for size first syncs at a time, where room more proxies may wait.
func gate(size, room int) *admission.Gate {
	return admission.New(admission.Options{MaxFirstSyncs: size, MaxWaiting: room}, nil, nil, nil)
}

// enter waits for a slot, with a client that was last heard at a time, and that may owe an
// answer.
func enter(t *testing.T, g *admission.Gate, owes bool, heard time.Time) error {
	s, err := g.Open(t.Context(), nil)
	if err != nil {
		return err
	}
	err = s.BeginSync(t.Context(), func() time.Time { return heard })
	s.StopClocks()
	s.StartClocks(owes)
	return err
}

// TestTurnsAreInOrder: clients get slots in the order in which they came. A silent client
// loses its slot after a second, and a client that owes an answer after three. Each lost
// slot leaves later clients less time: the last of a long row waits at most twice as long
// as the first client may keep its slot.
func TestTurnsAreInOrder(t *testing.T) {
	t.Parallel()
	for owes, each := range map[bool]time.Duration{false: time.Second, true: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			const size, clients = 3, 99
			g := gate(size, clients)
			began := time.Now()
			entered := make(chan int, clients)
			for i := range clients {
				go func() {
					if err := enter(t, g, owes, began); err != nil {
						t.Errorf("client %d: %v", i, err)
					}
					entered <- i
				}()
				synctest.Wait() // it waits, or has its turn
			}
			for want := range clients {
				if got := <-entered; got/size != want/size && (want < size || got <= want-size || got >= want+size) {
					t.Errorf("client %d has its turn as number %d", got, want)
				}
				if waited := time.Since(began); want < size && waited != 0 || want >= size && waited < each || waited > 2*each {
					t.Errorf("client %d, of which each %d have a turn for %s at first, has waited %s", want, size, each, waited)
				}
			}
			time.Sleep(each) // for the timers to end
		})
	}
}

// TestAPartOfAMessageIsHeard: a client that is in the middle of a long message is not
// silent.
func TestAPartOfAMessageIsHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := gate(1, 1)
		began := time.Now()
		if err := enter(t, g, false, began.Add(1500*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if err := enter(t, g, false, began); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != 2500*time.Millisecond {
			t.Errorf("the next has its turn after %s", waited)
		}
		time.Sleep(10 * time.Second) // for the timers to end
	})
}
