package rest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// quorum is a cache whose store is remote.
type quorum struct {
	rest.Source
	revision func() (int64, error)
}

func (q quorum) StoreRevision(context.Context) (int64, error) { return q.revision() }

func TestAReadWaitsForTheRevisionItIsGiven(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	next := s.Store.Version()
	answered := make(chan string)
	go func() {
		a := s.Do(t, "GET", shopEntries+"/a?resourceVersion="+plus(t, next, 1), "")
		answered <- fmt.Sprint(a.Code)
	}()
	select {
	case code := <-answered:
		t.Fatalf("answered %s before the revision was there", code)
	case <-time.After(20 * time.Millisecond):
	}
	create(t, s, "a", "")
	if code := <-answered; code != "200" {
		t.Errorf("answered %s", code)
	}
}

func plus(t *testing.T, version string, n int64) string {
	t.Helper()
	var revision int64
	if _, err := fmt.Sscan(version, &revision); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(revision + n)
}

// TestAReadThatCannotBeFreshSaysTryAgain is the other half of reading one's own writes:
// the answer is never silently stale. If the store itself has not reached the version,
// as after a restore, the answer does not say to try again: client-go would do so for
// most of a minute.
func TestAReadThatCannotBeFreshSaysTryAgain(t *testing.T) {
	t.Parallel()
	var asking sync.WaitGroup
	for store, retry := range map[int64]string{2: "", 98: "", 99: "1", 120: "1"} {
		s := resttest.Start(t, 0, func(o *rest.Options) {
			o.Cache = quorum{o.Cache, func() (int64, error) { return store, nil }}
		})
		create(t, s, "a", "")
		for _, path := range []string{shopEntries + "/a?resourceVersion=99", shopEntries + "?resourceVersion=99&resourceVersionMatch=NotOlderThan"} {
			asking.Go(func() {
				started := time.Now()
				a := s.Do(t, "GET", path, "")
				if a.Code != 504 || a.Header.Get("Retry-After") != retry || !strings.Contains(a.Body, "ResourceVersionTooLarge") {
					t.Errorf("%s, store at %d: %d %v %s", path, store, a.Code, a.Header, a.Body)
				}
				if took := time.Since(started); took < 2*time.Second || took > 20*time.Second {
					t.Errorf("%s: answered after %s, want 3s", path, took)
				}
			})
		}
	}
	asking.Wait()
}

func TestConsistentReads(t *testing.T) {
	t.Parallel()
	var asked error
	s := resttest.Start(t, 0, func(o *rest.Options) {
		o.Cache = quorum{o.Cache, func() (int64, error) { return 3, asked }}
	})
	answered := make(chan int)
	go func() { answered <- s.Do(t, "GET", shopEntries+"?consistent=true", "").Code }()
	create(t, s, "a", "")
	create(t, s, "b", "") // the store is at 3
	if code := <-answered; code != 200 {
		t.Errorf("answered %d", code)
	}
	asked = errors.New("no leader")
	if a := s.Do(t, "GET", shopEntries+"/a?consistent=true", ""); a.Code != 503 || a.Header.Get("Retry-After") == "" || !strings.Contains(a.Body, "no leader") {
		t.Errorf("%d %v %s", a.Code, a.Header, a.Body)
	}
	if a := s.Do(t, "GET", shopEntries+"/a", ""); a.Code != 200 {
		t.Errorf("a plain read: %d %s", a.Code, a.Body)
	}
}

func TestClientAsksForFreshness(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	create(t, s, "a", "")
	c, err := client.New(s.URL, call.Options{HTTP: s.HTTP})
	if err != nil {
		t.Fatal(err)
	}
	entries := client.Resource(schema.Pilot().Kind(schema.ServiceEntry))
	if _, err := c.Fresh(client.Freshness{MinRevision: 2, Consistent: true}).List(t.Context(), entries, "", client.Selection{}); err != nil {
		t.Error(err)
	}
	_, err = c.Fresh(client.Freshness{MinRevision: 99}).Get(t.Context(), entries, "shop", "a")
	if !call.NotYet(err) {
		t.Errorf("%v, want NotYet", err)
	}
	if _, err := c.Get(t.Context(), entries, "shop", "b"); err == nil || call.NotYet(err) {
		t.Errorf("%v, want not found", err)
	}
}
