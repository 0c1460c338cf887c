package objects

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// TestWaitForPhases: a change in phases is done when all have taken the last. If time is up before,
// the output names the phase, whom it waits for, and how to wait on.
func TestWaitForPhases(t *testing.T) {
	t.Parallel()
	taken := progress.Distribution{Revision: 815, Published: 817, Count: status.Count{Accepted: 2}}
	waiting := progress.Distribution{Revision: 817, Published: 817, Count: status.Count{Accepted: 1, Waiting: 1}, Problems: []status.Problem{{Node: "vm-18", Type: "LDS", Revision: 815, Since: time.Now()}}}
	for name, c := range map[string]struct {
		phases    int // how many answers about the object are on the way
		all       progress.Distribution
		forbidden bool // to ask about all
		args      []string
		code      int
		out, err  []string
	}{
		"they are over": {phases: 2, all: taken, out: []string{"distributed  2/2 proxies"}},
		"they are over, the last concerns nobody": {phases: 1, all: progress.Distribution{Revision: 817, Published: 817, Count: status.Count{NotConcerned: 2}},
			out: []string{"distributed  2/2 proxies", "no phase of the change goes on"}},
		"they are over, for one object": {phases: 2, forbidden: true, out: []string{"distributed  2/2 proxies"}},
		"time is up": {phases: 1 << 30, all: waiting, args: []string{"--timeout", "50ms"}, code: 2,
			out: []string{"phase shop: servers take both", "waiting  vm-18  LDS"},
			err: []string{"within 50ms (shop: servers take both)", "when 1 proxy has taken this one, or after a minute", "portolan wait peerauthentication/default -n shop"}},
		"time is up between two": {phases: 1 << 30, all: taken, args: []string{"--timeout", "50ms"}, code: 2, err: []string{"the next phase begins in a moment"}},
		"time is up, for one object": {phases: 1 << 30, forbidden: true, args: []string{"--timeout", "50ms"}, code: 2,
			err: []string{"within 50ms (shop: servers take both)", "portolan wait peerauthentication/default -n shop"}},
	} {
		var asked atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := admin.Propagation{Distribution: taken}
			if r.URL.Query().Has("revision") {
				if answer.Distribution = c.all; c.forbidden {
					forbidden := refusal.Forbidden("all namespaces").ErrStatus
					forbidden.Kind = "Status"
					rest.WriteJSON(w, http.StatusForbidden, forbidden)
					return
				}
			}
			if asked.Add(1) <= int64(c.phases) {
				answer.Phases = []string{"shop: servers take both"}
			}
			_ = json.NewEncoder(w).Encode(answer)
		}))
		got := line.Do(t, "", append([]string{"wait", "peerauthentication/default", "-n", "shop", "--server", server.URL}, c.args...)...)
		server.Close()
		if got.Code != c.code {
			t.Errorf("%s: %+v", name, got)
		}
		expectWords(t, name, got.Out, c.out)
		expectWords(t, name, got.Err, c.err)
	}
}

// TestTimeoutOfPhases: the default is enough for two phases of a minute; who gives a time gets it.
func TestTimeoutOfPhases(t *testing.T) {
	t.Parallel()
	of := config.Key{Kind: schema.PeerAuthentication, Namespace: "shop", Name: "default"}
	for given, want := range map[bool]time.Duration{false: 150 * time.Second, true: waitTimeout} {
		o := waitFlags{timeout: waitTimeout, anyTimeout: func() bool { return given }}
		if o.waitForPhases(of); o.timeout != want || !o.phases {
			t.Errorf("given %v: %+v", given, o)
		}
	}
}
