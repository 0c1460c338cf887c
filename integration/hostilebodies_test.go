package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/integration/load/meter"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestHostileBodies: many clients send the bodies that cost a reader most. The server's memory
// stays within what docs/operations/sizing.md states, changes of other clients are answered, a
// new proxy is served, and the memory is freed afterwards.
func TestHostileBodies(t *testing.T) {
	s := startServer(t, serverOptions{})
	s.apply(ship("shop", "web", "10.0.0.1"))
	process := meter.Process(s.process.PID())
	idle, err := process.Usage()
	if err != nil {
		t.Skipf("SKIPPED, AND NOTHING WAS TESTED: the memory of a process cannot be measured here: %v", err)
	}
	const stated, slack = (128 + 128 + 512) << 20, 256 << 20 // slack is what the process needs besides bodies, and garbage not yet collected
	if err := process.ResetPeak(); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	var attack sync.WaitGroup
	defer attack.Wait()
	defer stop()
	url := s.url("/apis/networking.istio.io/v1/namespaces/shop/serviceentries")
	send := func(media, body string) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for ctx.Err() == nil {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", media)
			if a, err := client.Do(r); err == nil {
				if _ = a.Body.Close(); a.StatusCode < 400 || a.StatusCode >= 500 {
					t.Errorf("a hostile body is answered %s", a.Status)
				}
			}
		}
	}
	values := (512<<20 - 2<<20) / 512 / 3 // a mapping of one key each
	for _, body := range []struct{ media, text string }{
		{"application/yaml", "a: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.Repeat("*a,", 100_000) + "]\n"},
		{"application/yaml", "hosts: [" + strings.Repeat("{a: b},", values) + "]\n"},
		{"application/json", `{"spec":{"hosts":["a"` + strings.Repeat(`,"a"`, 1_500_000) + "]}}"},
		{"application/yaml", "hosts: [" + strings.Repeat("x,", 5_000) + "]\n"},
	} {
		for range 4 {
			attack.Go(func() { send(body.media, body.text) })
		}
	}
	for range 2 { // begin a large body and go silent, again and again
		attack.Go(func() {
			for ctx.Err() == nil {
				c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.api)
				if err != nil {
					return
				}
				leave := context.AfterFunc(ctx, func() { _ = c.Close() })
				fmt.Fprintf(c, "POST /apis/networking.istio.io/v1/namespaces/shop/serviceentries HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", 32<<20, bytes.Repeat([]byte(" "), 1<<20))
				_, _ = io.Copy(io.Discard, c)
				leave()
				_ = c.Close()
			}
		})
	}

	var slowest time.Duration
	for i := range 30 {
		start := time.Now()
		s.apply(ship("shop", "web", fmt.Sprintf("10.0.1.%d", i)))
		slowest = max(slowest, time.Since(start))
	}
	late := xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.0.0.9", "late", "shop", nil), Follow: true}
	start := time.Now()
	connect(t, s, late)
	s.awaitSynced(s.revision(), "late")
	synced := time.Since(start)
	stop()
	attack.Wait()

	used, err := process.Usage()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("at most %d MiB, %d MiB when idle; the slowest of 30 changes took %v, a new proxy was served in %v",
		used.Peak>>20, idle.Resident>>20, slowest.Round(time.Millisecond), synced.Round(time.Millisecond))
	if used.Peak > idle.Resident+stated+slack {
		t.Errorf("the server had %d MiB, and %d are stated", used.Peak>>20, (idle.Resident+stated)>>20)
	}
}
