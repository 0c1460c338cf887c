package kubetest_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/kubetest"
	"github.com/portolan-mesh/portolan/storage/logtest"
)

// TestFollowedAgainIsLoggedOnce: another reason for which a cluster is not followed is no end of it.
func TestFollowedAgainIsLoggedOnce(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	write(t, api, "a", "a.example")
	log := &logtest.Log{}
	o := options(api)
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	f := follow(t, o)
	f.await(t, "a=a.example")
	write(t, api, "b", "b.example") // a watch that ends without an event is another reason
	f.await(t, "a=a.example", "b=b.example")
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
	f.until(t, "the log says so", func() bool { return log.Count(again) > 0 })
	if got := log.Count(again); got != 1 {
		t.Errorf("it is logged %d times", got)
	}
	if got := log.Count("a cluster cannot be followed"); got != 3 {
		t.Errorf("a reason is logged %d times", got)
	}
}
