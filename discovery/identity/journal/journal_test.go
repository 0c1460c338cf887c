package journal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/discovery/identity/journal"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pulse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a Notes in memory.
type store struct {
	mu    sync.Mutex
	fault error
	asked int
	got   []storage.Origin
	about []config.Key
}

func (s *store) Note(_ context.Context, _ time.Time, origin storage.Origin, about []config.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.fault != nil {
		return s.fault
	}
	s.got, s.about = append(s.got, origin), append(s.about, about...)
	return nil
}

func (s *store) set(fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *store) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out strings.Builder
	for _, o := range s.got {
		fmt.Fprintf(&out, "%s|%s|%s|%s\n", o.User, o.Address, o.Tool, o.Message)
	}
	return out.String()
}

// within runs a journal of refusals in a synctest bubble.
func within(t *testing.T, test func(t *testing.T, s *store, r *journal.Refusals)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, r := &store{}, journal.NewRefusals()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- journal.New(s, nil, r).Run(ctx) }()
		test(t, s, r)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// after lets some time pass.
func after(d time.Duration) {
	time.Sleep(d) // in the bubble's clock, so nobody waits
	synctest.Wait()
}

var anna = journal.Refusal{Port: "config API", User: "anna", Address: "10.0.0.7:4711", Tool: "curl", Wanted: "list secrets in shop", Reason: "no role permits it"}

// TestRefusals: a refusal is in the history at once, with the number of equal attempts.
func TestRefusals(t *testing.T) {
	t.Parallel()
	within(t, func(t *testing.T, s *store, r *journal.Refusals) {
		after(time.Millisecond) // lets the journal create its ticker
		r.Add(anna)
		for port := range 3 {
			guess := journal.Refusal{Port: "config API", Address: fmt.Sprint("[2001:db8::", port+1, "]:", port+1), Reason: "the token is not valid"}
			r.Add(guess)
		}
		after(2 * time.Second)
		want := "anna|10.0.0.7:4711|curl|config API: list secrets in shop: no role permits it\n" +
			"|[2001:db8::3]:3||config API: the token is not valid (3 times since "
		if got := s.text(); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 2 {
			t.Errorf("%s", got)
		}
		for _, key := range s.about {
			if key.Kind.Kind != journal.RefusalKind || key.Namespace != "" {
				t.Errorf("it is about %s", key)
			}
		}
		if s.about[0] == s.about[1] {
			t.Errorf("both are %s", s.about[0])
		}
	})
}

// TestAFlood: a flood of attempts makes few records of bounded size, which say how many
// attempts they leave out. The numbers in the records add up to all attempts.
func TestAFlood(t *testing.T) {
	t.Parallel()
	within(t, func(t *testing.T, s *store, r *journal.Refusals) {
		const seconds, each = 1200, 70
		for second := range seconds {
			for i := range each {
				r.Add(journal.Refusal{
					Port: "xDS", User: strings.Repeat("u", i*10), Address: fmt.Sprintf("10.0.%d.%d:1", second%200, i), Reason: strings.Repeat("because ", 100),
				})
			}
			after(time.Second)
		}
		s.mu.Lock()
		asked := s.asked
		s.mu.Unlock()
		if asked > 20+5 {
			t.Errorf("%d writes in 20 minutes", asked)
		}
		for _, line := range strings.Split(s.text(), "\n") {
			if len(line) > 20*1000 {
				t.Errorf("a record has %d bytes", len(line))
			}
		}
		if !strings.Contains(s.text(), " attempts of others since ") {
			t.Errorf("%s", s.text())
		}
	})
}

// TestAStoreThatIsAway: a store that is away delays nobody, and gets the refusals when it is
// back.
func TestAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	within(t, func(t *testing.T, s *store, r *journal.Refusals) {
		s.set(errors.New("away"))
		for range 10_000 {
			r.Add(anna)
			after(time.Millisecond)
		}
		if got := s.text(); got != "" {
			t.Errorf("%s", got)
		}
		s.set(nil)
		after(2 * time.Second)
		if got := s.text(); strings.Count(got, "\n") != 2 || !strings.Contains(got, " times since ") {
			t.Errorf("%s", got)
		}
	})
}

// TestTheLastOnes: when the server stops, all remaining refusals are written.
func TestTheLastOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &store{}, journal.NewRefusals()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		for i := range 60 {
			one := anna
			one.User = fmt.Sprint("anna-", i)
			r.Add(one)
		}
		if err := journal.New(s, nil, r).Run(ctx); err != nil {
			t.Error(err)
		}
		if got := s.text(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "anna-0 from 10.0.0.7:4711: config API") || !strings.Contains(got, "and 40 attempts of others") {
			t.Errorf("%s", got)
		}
	})
}

// TestNoCredentials: credentials never reach the history, wherever a client puts them.
func TestNoCredentials(t *testing.T) {
	t.Parallel()
	within(t, func(t *testing.T, s *store, r *journal.Refusals) {
		for i, secret := range []string{"put_abcdefghijklmnop", "pjt_shop_abcdefgh_ijklmnopqrstuvwxyz", "pst_cp-1_abcdefgh_ijklmnopqrstuvwxyz", "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ3ZWIifQ.c2lnbmF0dXJl"} {
			r.Add(journal.Refusal{Port: fmt.Sprint(i), User: secret, Address: secret, Tool: "x " + secret, Wanted: "get /" + secret, Reason: "no\n" + secret + "\x00" + strings.Repeat(secret, 100)})
		}
		after(3 * time.Second)
		if got := s.text(); strings.Count(got, "\n") != 4 || strings.Contains(got, "abcdefgh") || strings.Contains(got, "c2lnbm") || strings.Contains(got, "\x00") {
			t.Errorf("%s", got)
		}
	})
}

// watched is a Source without records, which remembers when it was polled.
type watched struct{ polls []time.Duration }

func (w *watched) Next(time.Time, bool) (journal.Record, bool) {
	w.polls = append(w.polls, pulse.Until(time.Second))
	return journal.Record{}, false
}

func (*watched) Wake() <-chan struct{} { return nil }

// TestAJournalAtRestWakesWithOthers: a journal polls its source once a second, when all other
// periodic checks of the process run too.
func TestAJournalAtRestWakesWithOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		after(300 * time.Millisecond)
		source := &watched{}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		if err := journal.New(&store{}, nil, source).Run(ctx); err != nil {
			t.Error(err)
		}
		polls := source.polls[:len(source.polls)-1] // without the last one, at the end
		if n := len(polls); n < 8 || n > 10 {
			t.Errorf("%d polls in 10 seconds", n)
		}
		for i, until := range polls {
			if until%time.Second != 0 {
				t.Errorf("poll %d: the next check of others is in %v", i, until)
			}
		}
	})
}
