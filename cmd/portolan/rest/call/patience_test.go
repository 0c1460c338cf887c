package call_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// TestTimeIsUpWhileTheServerRefuses: the error of a refused call says that it was
// refused, even if its time is up during a later attempt.
func TestTimeIsUpWhileTheServerRefuses(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var dials atomic.Int32
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		if dials.Add(1) > 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}}
	c, err := client.New("127.0.0.1:1", call.Options{HTTP: &http.Client{Transport: transport}, Patience: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	err = c.JSON(ctx, "/", nil)
	if !errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
}

// TestStarting: a call waits for a server that has not read its store yet, but for no
// other kind of unavailability.
func TestStarting(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	answer := func(refusal *apierrors.StatusError, times int32) *client.Client {
		calls.Store(0)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) > times {
				rest.WriteJSON(w, http.StatusOK, map[string]string{})
				return
			}
			status := refusal.ErrStatus
			status.Kind = "Status"
			rest.WriteJSON(w, int(status.Code), status)
		}))
		t.Cleanup(server.Close)
		c, err := client.New(server.URL, call.Options{Patience: time.Hour, Waiting: func() { t.Error("told that nobody listens") }})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := answer(refusal.Starting("not read yet"), 2).Post(t.Context(), "/", map[string]string{}, nil); err != nil || calls.Load() != 3 {
		t.Errorf("%d calls: %v", calls.Load(), err)
	}
	if err := answer(refusal.Unavailable("no store"), 2).JSON(t.Context(), "/", nil); !apierrors.IsServiceUnavailable(err) || calls.Load() != 1 {
		t.Errorf("%d calls: %v", calls.Load(), err)
	}
}
