package rest_test

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// heavy is a service with an annotation of so many bytes: more than the system buffers
// for a client that does not read.
func heavy(i, bytes int) *config.Config {
	object := service(i, "10.0.0.1")
	object.Annotations = map[string]string{"text": strings.Repeat("x", bytes)}
	return object
}

// deaf opens a connection that requests a path, and never reads.
func deaf(t *testing.T, s *resttest.Server, path string) {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
}

// TestSlowWatchesGiveWay: watches that do not read are ended when they hold too much
// memory, and others go on.
func TestSlowWatchesGiveWay(t *testing.T) {
	t.Parallel()
	const limit, size, n = 20 << 20, 6 << 20, 8
	s := resttest.Start(t, 0, func(o *rest.Options) { o.WatchMemory = limit })
	for i := range n {
		deaf(t, s, fmt.Sprintf("%s?watch=true&resourceVersion=1&fieldSelector=metadata.name=service-%05d", entries, i))
	}
	w := follow(t, s, entries+"?watch=true&resourceVersion=1&fieldSelector=metadata.name=last")
	awaitMetric(t, s, "the watches are open", `portolan_api_watchers{kind="ServiceEntry"}`, n+1)
	for i := range n { // each is to be sent on its own
		if _, err := s.Store.Create(t.Context(), heavy(i, size)); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		held, ended := metric(t, s, "portolan_api_watch_memory_bytes"), metric(t, s, "portolan_api_slow_watches_total")
		if held <= limit && ended >= n-limit/size {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("watches hold %.0f bytes, and %.0f were ended: the limit is %d", held, ended, limit)
		}
	}
	last := service(0, "10.0.0.1")
	last.Name = "last"
	if _, err := s.Store.Create(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	w.next()
}

// TestWatchesAreEncodedOnce: many watches share the text of an event.
func TestWatchesAreEncodedOnce(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	for range 50 {
		deaf(t, s, entries+"?watch=true&resourceVersion=1")
	}
	awaitMetric(t, s, "the watches are open", `portolan_api_watchers{kind="ServiceEntry"}`, 50)
	object := heavy(1, 12<<20)
	if _, err := s.Store.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	text, err := config.ToJSON(object, "v1")
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		if n := metric(t, s, "portolan_api_watch_memory_bytes"); n > 1.5*float64(len(text)) {
			t.Fatalf("50 watches hold %.0f bytes of an object of %d", n, len(text))
		} else if n > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the watches hold nothing")
}

// TestWatchesAreFew: one watch too many is refused, with the advice to retry.
func TestWatchesAreFew(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.MaxWatches = 2 })
	first := follow(t, s, entries+"?watch=true")
	follow(t, s, entries+"?watch=true")
	a := s.Do(t, "GET", entries+"?watch=true", "")
	if a.Code != http.StatusTooManyRequests || !strings.Contains(string(a.Body), "--max-watches") {
		t.Errorf("a third watch is answered %d: %s", a.Code, a.Body)
	}
	first.close()
	awaitMetric(t, s, "a watch has ended", `portolan_api_watchers{kind="ServiceEntry"}`, 1)
	follow(t, s, entries+"?watch=true")
}

// TestALongListIsWhole: although it is sent while it is made.
func TestALongListIsWhole(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	const n = 500
	ops := make([]storage.Op, n)
	for i := range ops {
		ops[i] = storage.Op{Verb: storage.Create, Config: heavy(i, 1<<10)}
	}
	if _, _, err := s.Store.Apply(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cache.Await(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	a := s.Do(t, "GET", entries, "")
	if got := strings.Count(string(a.Body), `"name":"service-`); a.Code != 200 || got != n {
		t.Errorf("%d: %d of %d", a.Code, got, n)
	}
}

func metric(t *testing.T, s *resttest.Server, series string) float64 {
	t.Helper()
	for line := range strings.Lines(string(s.Do(t, "GET", "/metrics", "").Body)) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	return 0
}

func awaitMetric(t *testing.T, s *resttest.Server, what, series string, value float64) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); metric(t, s, series) != value; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s is %v, and not %v", what, series, metric(t, s, series), value)
		}
	}
}
