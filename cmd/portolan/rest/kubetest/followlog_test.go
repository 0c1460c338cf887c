package kubetest_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/kubetest"
)

// record keeps what is logged.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) count(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), text)
}

// TestFollowedAgainIsLoggedOnce: another reason for which a cluster is not followed is no end of it.
func TestFollowedAgainIsLoggedOnce(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	write(t, api, "a", "a.example")
	log := &record{}
	o := options(api)
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	f := follow(t, o)
	f.await(t, "a=a.example")
	harm := func(code int, reason string) {
		api.Harm(func(w http.ResponseWriter, r *http.Request) bool {
			if kubetest.Verb(r) == "watch" {
				kubetest.Refuse(w, code, reason, "no")
				return true
			}
			return false
		})
	}
	harm(http.StatusForbidden, "Forbidden")
	api.Cut(t)
	f.degraded(t, "the account may not watch")
	harm(http.StatusUnauthorized, "Unauthorized")
	f.degraded(t, "does not accept the credentials")
	harm(http.StatusForbidden, "Forbidden")
	f.degraded(t, "the account may not watch")
	api.Harm(nil)
	f.degraded(t, "")
	const again = "a cluster is followed again"
	f.until(t, "the log says so", func() bool { return log.count(again) > 0 })
	if got := log.count(again); got != 1 {
		t.Errorf("it is logged %d times", got)
	}
	if got := log.count("a cluster cannot be followed"); got != 3 {
		t.Errorf("a reason is logged %d times", got)
	}
}
