package registration_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
)

// TestServersThatAreCutOff: a server that loses three machines or more at once keeps their entries
// while no server has any proxy. When the first is back, the others have a while to come back too; then
// the entries of those that have not are gone.
func TestServersThatAreCutOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		machines, others int
		stay             bool
	}{
		"all machines of the mesh":                   {3, 0, true},
		"two machines":                               {2, 0, false},
		"all of one server, and others have proxies": {3, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			var others atomic.Int64
			m.others = func() int { return int(others.Load()) }
			m.put(group())
			r, _ := m.server("one")
			var streams []discovery.Registration
			there := func() (n int) {
				for i := range c.machines {
					if m.entry(fmt.Sprintf("web-10.0.0.%d", i+1)) != nil {
						n++
					}
				}
				return n
			}
			again := func(i int) discovery.Registration {
				return join(r, proxy(fmt.Sprintf("m%d", i), fmt.Sprintf("10.0.0.%d", i+1)))
			}
			for i := range c.machines {
				streams = append(streams, again(i))
			}
			m.await("all entries", func() bool { return there() == c.machines })
			others.Store(int64(c.others))
			for _, s := range streams {
				s.Leave()
			}
			if !c.stay {
				m.await("the entries are gone", func() bool { return there() == 0 })
				return
			}
			m.always("the entries stay for longer than their leases", func() bool { return there() == c.machines })
			again(0)
			again(1)
			m.await("the entry of the one that is not back is gone", func() bool { return there() == c.machines-1 })
			if m.entry("web-10.0.0.1") == nil || m.entry("web-10.0.0.2") == nil {
				t.Error("the entry of one that is back is gone")
			}
		})
	}
}
