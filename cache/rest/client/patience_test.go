package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache/rest/client"
)

// TestTimeIsUpWhileTheServerRefuses: a call that was refused says so, also where its time is
// up while it connects again.
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
	c, err := client.New("127.0.0.1:1", client.Options{HTTP: &http.Client{Transport: transport}, Patience: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	err = c.JSON(ctx, "/", nil)
	if !errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
}
