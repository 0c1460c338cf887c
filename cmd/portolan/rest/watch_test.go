package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
)

type watching struct {
	t      *testing.T
	lines  *bufio.Reader
	cancel context.CancelFunc
	body   func() error
}

// follow opens a watch that ends with the test.
func follow(t *testing.T, s *resttest.Server, path string) *watching {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.HTTP.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	w := &watching{t: t, lines: bufio.NewReader(response.Body), cancel: cancel, body: response.Body.Close}
	t.Cleanup(w.close)
	if response.StatusCode != 200 {
		t.Fatalf("watch %s: %s", path, response.Status)
	}
	return w
}

func (w *watching) close() {
	w.cancel()
	_ = w.body()
}

// read returns the next event as "TYPE name@revision", and whole.
func (w *watching) read() (string, event, error) {
	line, err := w.lines.ReadString('\n')
	if err != nil {
		return "", event{}, err
	}
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return "", event{}, fmt.Errorf("%w in %s", err, line)
	}
	return fmt.Sprintf("%s %s@%s", e.Type, e.Object.Metadata.Name, e.Object.Metadata.ResourceVersion), e, nil
}

// next is read, for the goroutine of the test.
func (w *watching) next() (string, event) {
	w.t.Helper()
	text, e, err := w.read()
	if err != nil {
		w.t.Fatalf("watch: %v", err)
	}
	return text, e
}

type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

func (w *watching) expect(want ...string) {
	w.t.Helper()
	for _, one := range want {
		if got, _ := w.next(); got != one {
			w.t.Fatalf("event %q, want %q", got, one)
		}
	}
}

// ends checks that the server ends the watch.
func (w *watching) ends() {
	w.t.Helper()
	if line, err := w.lines.ReadString('\n'); err == nil {
		w.t.Fatalf("event %s", line)
	}
}

// apply does a batch and returns its revision.
func apply(t *testing.T, s *resttest.Server, operations ...string) int {
	t.Helper()
	a := s.Do(t, "POST", batches, batchOf(operations...))
	if a.Code != 200 {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	var result struct{ Revision string }
	if err := json.Unmarshal([]byte(a.Body), &result); err != nil {
		t.Fatal(err)
	}
	revision, err := strconv.Atoi(result.Revision)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func TestWatchBeginsWithWhatIsThere(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	apply(t, s, write("apply", entry("b", "")))
	apply(t, s, write("apply", entry("a", "")))
	for _, query := range []string{
		"?watch=true&allowWatchBookmarks=true",
		"?watch=1&resourceVersion=0&allowWatchBookmarks=true",
		"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=2&allowWatchBookmarks=true",
	} {
		w := follow(t, s, entries+query)
		w.expect("ADDED a@3", "ADDED b@2")
		got, bookmark := w.next()
		if got != "BOOKMARK @3" || bookmark.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] != "true" || bookmark.Object.Kind != "ServiceEntry" {
			t.Errorf("%s: %s %+v", query, got, bookmark)
		}
		w.close()
	}
	quiet := follow(t, s, entries+"?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
	apply(t, s, write("delete", entry("b", "")))
	quiet.expect("DELETED b@4")
}

func TestWatchFromARevision(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	apply(t, s, write("apply", entry("a", "")), write("apply", entry("b", "")))                     // 2
	apply(t, s, write("apply", entry("b", `,"labels":{"x":"1"}`)), write("delete", entry("a", ""))) // 3
	apply(t, s, write("apply", logging))                                                            // 4
	apply(t, s, write("apply", entry("b", `,"labels":{"x":"2"}`)))                                  // 5
	follow(t, s, entries+"?watch=true&resourceVersion=2").expect("ADDED a@2", "ADDED b@2", "DELETED a@3", "MODIFIED b@3", "MODIFIED b@5")
	follow(t, s, entries+"?watch=true&resourceVersion=3").expect("DELETED a@3", "MODIFIED b@3", "MODIFIED b@5")
	w := follow(t, s, entries+"?watch=true&resourceVersion=5")
	w.expect("MODIFIED b@5")
	apply(t, s, write("delete", entry("b", "")), write("apply", entry("c", "")))
	w.expect("DELETED b@6", "ADDED c@6")
	elsewhere := follow(t, s, "/apis/networking.istio.io/v1/namespaces/bank/serviceentries?watch=true&resourceVersion=2")
	apply(t, s, write("apply", strings.Replace(entry("d", ""), `"shop"`, `"bank"`, 1)))
	elsewhere.expect("ADDED d@7")
}

func TestWatchSelectsAndPresents(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	labelled := func(value string) string { return write("apply", entry("a", `,"labels":{"app":"`+value+`"}`)) }
	w := follow(t, s, "/apis/networking.istio.io/v1beta1/serviceentries?watch=true&labelSelector=app%3Dweb")
	named := follow(t, s, entries+"?watch=true&fieldSelector=metadata.name%3Db")
	apply(t, s, labelled("db"))
	apply(t, s, labelled("web"), write("apply", entry("b", "")))
	got, first := w.next()
	if got != "ADDED a@3" || first.Object.APIVersion != "networking.istio.io/v1beta1" {
		t.Fatalf("%s %+v", got, first)
	}
	named.expect("ADDED b@3")
	apply(t, s, labelled("db"))
	got, gone := w.next()
	if got != "DELETED a@4" || gone.Object.Metadata.Labels["app"] != "web" {
		t.Fatalf("%s %+v", got, gone)
	}
	apply(t, s, labelled("web"))
	w.expect("ADDED a@5")
}

func TestWatchOfWhatIsForgotten(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 2, nil)
	for _, name := range []string{"a", "b", "c", "d"} {
		create(t, s, name, "")
	}
	a := s.Do(t, "GET", entries+"?watch=true&resourceVersion=2", "")
	if status := parse[metav1.Status](t, a.Body); a.Code != 410 || status.Reason != metav1.StatusReasonExpired {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	follow(t, s, entries+"?watch=true&resourceVersion=5").expect("ADDED d@5")
}

// relistedCache is a cache that was listed again at a revision, and has no history before it.
type relistedCache struct {
	rest.Source
	revision int64
}

func (l relistedCache) Next(ctx context.Context, after *cache.Snapshot) (*cache.Snapshot, error) {
	if after.Revision() < l.revision {
		return l.Await(ctx, l.revision)
	}
	return l.Source.Next(ctx, after)
}

func (l relistedCache) At(revision int64) (*cache.Snapshot, bool) {
	if revision < l.revision {
		return nil, false
	}
	return l.Source.At(revision)
}

// TestWatchOverANewList: deletions come first and without the revision of the list, so
// that a client that got half of the events does not take them for all.
func TestWatchOverANewList(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Cache = relistedCache{o.Cache, 8} })
	for _, name := range []string{"a", "b", "c"} {
		create(t, s, name, "")
	}
	w := follow(t, s, entries+"?watch=true")
	w.expect("ADDED a@2", "ADDED b@3", "ADDED c@4")
	for _, name := range []string{"a", "b"} {
		if a := s.Do(t, "DELETE", shopEntries+"/"+name, ""); a.Code != 200 {
			t.Fatal(a.Body)
		}
	}
	apply(t, s, write("apply", entry("c", `,"labels":{"app":"web"}`)))
	create(t, s, "b", "")
	w.expect("DELETED a@4", "DELETED b@4", "MODIFIED c@7", "ADDED b@8")
	create(t, s, "d", "")
	w.expect("ADDED d@9")
}

// progressed is a cache whose revision has moved on, without changes, when the next
// snapshot is requested.
type progressed struct{ rest.Source }

func (p progressed) Next(ctx context.Context, after *cache.Snapshot) (*cache.Snapshot, error) {
	next, err := p.Source.Next(ctx, after)
	if err != nil {
		return nil, err
	}
	return next.Next(next.Revision()+100, next.Content()), nil
}

// TestADeletionBearsItsRevision: a deletion has the revision that deleted, so that all
// servers send the same, however late.
func TestADeletionBearsItsRevision(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Cache = progressed{o.Cache} })
	create(t, s, "a", "")
	w := follow(t, s, entries+"?watch=true")
	w.expect("ADDED a@2")
	if a := s.Do(t, "DELETE", shopEntries+"/a", ""); a.Code != 200 {
		t.Fatal(a.Body)
	}
	w.expect("DELETED a@3")
}

// TestWatchOverANewListOfTheNextRevision: no revision lies between, so all events have
// its revision.
func TestWatchOverANewListOfTheNextRevision(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Cache = relistedCache{o.Cache, 3} })
	create(t, s, "a", "")
	w := follow(t, s, entries+"?watch=true")
	w.expect("ADDED a@2")
	if a := s.Do(t, "DELETE", shopEntries+"/a", ""); a.Code != 200 {
		t.Fatal(a.Body)
	}
	w.expect("DELETED a@3")
}

// forgetful is a cache whose history no longer has the followers' snapshots.
type forgetful struct{ rest.Source }

func (forgetful) Next(context.Context, *cache.Snapshot) (*cache.Snapshot, error) {
	return nil, fmt.Errorf("follow: %w", storage.ErrCompacted)
}

func TestWatchThatFellBehind(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.Cache = forgetful{o.Cache} })
	a := s.Do(t, "GET", entries+"?watch=true", "")
	e := parse[struct {
		Type   string
		Object metav1.Status
	}](t, a.Body)
	if a.Code != 200 || e.Type != "ERROR" || e.Object.Code != 410 || e.Object.Reason != metav1.StatusReasonExpired {
		t.Errorf("%d %s", a.Code, a.Body)
	}
}

func TestWatchOfTheFuture(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	a := s.Do(t, "GET", entries+"?watch=true&resourceVersion=99", "")
	status := parse[metav1.Status](t, a.Body)
	if a.Code != 504 || len(status.Details.Causes) != 1 || status.Details.Causes[0].Type != metav1.CauseTypeResourceVersionTooLarge {
		t.Errorf("%d %s", a.Code, a.Body)
	}
}

func TestBookmarks(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, func(o *rest.Options) { o.BookmarkInterval = 20 * time.Millisecond })
	w := follow(t, s, entries+"?watch=true&allowWatchBookmarks=true")
	w.expect("BOOKMARK @1", "BOOKMARK @1")
	apply(t, s, write("apply", logging)) // moves the revision, and is no event here
	for got, _ := w.next(); got != "BOOKMARK @2"; got, _ = w.next() {
		if got != "BOOKMARK @1" {
			t.Fatal(got)
		}
	}
	without := follow(t, s, entries+"?watch=true&timeoutSeconds=1")
	without.ends()
}

func TestWatchParameters(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	for query, code := range map[string]int{
		"timeoutSeconds=x": 400, "timeoutSeconds=-1": 400, "resourceVersion=-1": 400, "labelSelector=a(": 400, "sendInitialEvents=true": 422, "warnings=true": 422,
		"resourceVersionMatch=Exact&resourceVersion=1": 422,
	} {
		if a := s.Do(t, "GET", entries+"?watch=true&"+query, ""); a.Code != code {
			t.Errorf("%s: %d %s", query, a.Code, a.Body)
		}
	}
	if a := s.Do(t, "GET", shopEntries+"/a?watch=true", ""); a.Code != 400 {
		t.Errorf("watch of an object: %d %s", a.Code, a.Body)
	}
}

func TestEndOfWatches(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	w := follow(t, s, entries+"?watch=true")
	if metrics := s.Do(t, "GET", "/metrics", "").Body; !strings.Contains(metrics, `portolan_api_watchers{kind="ServiceEntry"} 1`) {
		t.Error("the watch is not counted")
	}
	s.REST.EndWatches()
	w.ends()
	follow(t, s, entries+"?watch=true").ends()
}

// Watchers that begin anywhere see every revision whole and in order while others write.
func TestWatchersMissNothing(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	const rounds = 30
	apply(t, s, write("apply", entry("a", "")), write("apply", entry("b", "")))
	var watchers sync.WaitGroup
	for range 4 {
		w := follow(t, s, entries+"?watch=true&resourceVersion=2")
		watchers.Go(func() {
			for revision := 2; revision < 2+rounds; revision++ {
				for _, name := range []string{"a", "b"} {
					if got, _, err := w.read(); err != nil || !strings.HasSuffix(got, fmt.Sprintf(" %s@%d", name, revision)) {
						t.Errorf("%s at revision %d: %v", got, revision, err)
						return
					}
				}
			}
		})
	}
	for i := range rounds {
		label := fmt.Sprintf(`,"labels":{"round":"%d"}`, i)
		apply(t, s, write("apply", entry("a", label)), write("apply", entry("b", label)))
	}
	watchers.Wait()
}
