package transcript_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/transcript"
)

// events returns what a log has after a time, as words.
func events(l *transcript.Log, after time.Time) string {
	var out []string
	for _, e := range l.After(after) {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s", e.Event, e.Nonce)))
	}
	return strings.Join(out, ", ")
}

// TestLogKeepsTheLast: a log has a bound, and its times lead a reader on.
func TestLogKeepsTheLast(t *testing.T) {
	t.Parallel()
	book := transcript.NewBook()
	s := book.Open("a", "here")
	for i := range 100 {
		s.Sent("CDS", fmt.Sprint(i), "v", 2, 1, 10)
	}
	log := book.Find("a")
	all := log.After(time.Time{})
	if len(all) != 64 || all[0].Nonce != "36" || all[63].Nonce != "99" {
		t.Fatalf("%d entries from %s to %s", len(all), all[0].Nonce, all[len(all)-1].Nonce)
	}
	for i := 1; i < len(all); i++ {
		if !all[i].Time.After(all[i-1].Time) {
			t.Errorf("entry %d is of %s, that before of %s", i, all[i].Time, all[i-1].Time)
		}
	}
	if got := events(log, all[61].Time); got != "sent 98, sent 99" {
		t.Errorf("later than an entry are %s", got)
	}
	if got := log.After(all[63].Time); got == nil || len(got) != 0 {
		t.Errorf("after the last are %v", got)
	}
}

// TestTraffic: each stream of a client counts what it cost.
func TestTraffic(t *testing.T) {
	t.Parallel()
	book := transcript.NewBook()
	one, two := book.Open("a", "here"), book.Open("a", "there")
	one.Sent("CDS", "1", "v", 2, 0, 10)
	one.Acknowledged("CDS", "1", 10*time.Millisecond)
	one.Sent("CDS", "2", "v", 3, 1, 20)
	one.Refused("CDS", "2", "no", 30*time.Millisecond)
	two.Requested("LDS", 1, 2)
	want := transcript.Traffic{Responses: 2, Resources: 5, Bytes: 30, Acks: 1, Refusals: 1, MeanTook: 20 * time.Millisecond, LongestTook: 30 * time.Millisecond}
	if got := one.Traffic(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := two.Traffic(); got != (transcript.Traffic{}) {
		t.Errorf("the other stream has %+v", got)
	}
	if got, want := events(book.Find("a"), time.Time{}), "connected, connected, sent 1, acknowledged 1, sent 2, refused 2, requested"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestGoneClients: the log of a client that is gone stays, and goes on where it comes again; only so
// many stay.
func TestGoneClients(t *testing.T) {
	t.Parallel()
	book := transcript.NewBook()
	one, two := book.Open("a", "here"), book.Open("a", "there")
	book.Close("a", one, "bye")
	if got := book.Gone(); len(got) != 0 {
		t.Errorf("%v are gone, and one stream is open", got)
	}
	book.Close("a", two, "bye")
	if got := book.Gone(); len(got) != 1 || got[0] != "a" {
		t.Errorf("%v are gone", got)
	}
	again := book.Open("a", "here")
	if got, want := events(book.Find("a"), time.Time{}), "connected, connected, ended, ended, connected"; got != want || len(book.Gone()) != 0 {
		t.Errorf("%s, want %s; gone are %v", got, want, book.Gone())
	}
	book.Close("a", again, "bye")
	for i := range 500 {
		node := fmt.Sprint("n", i)
		book.Close(node, book.Open(node, "here"), "bye")
	}
	if book.Find("a") != nil || book.Find("n0") == nil || len(book.Gone()) != 500 {
		t.Errorf("%d are kept, among them a: %v", len(book.Gone()), book.Find("a") != nil)
	}
}

// TestSentAllocatesNothing: a push costs no memory once the log is full.
func TestSentAllocatesNothing(t *testing.T) {
	s := transcript.NewBook().Open("a", "here")
	send := func() {
		s.Sent("EDS", "815-1", "v", 1, 0, 100)
		s.Acknowledged("EDS", "815-1", time.Millisecond)
	}
	for range 64 {
		send()
	}
	if n := testing.AllocsPerRun(100, send); n != 0 {
		t.Errorf("a push and its answer make %.1f allocations", n)
	}
}

// BenchmarkPushNoted is what the log adds to a push and its answer.
func BenchmarkPushNoted(b *testing.B) {
	s := transcript.NewBook().Open("a", "here")
	b.ReportAllocs()
	for b.Loop() {
		s.Sent("EDS", "815-1", "v", 1, 0, 100)
		s.Acknowledged("EDS", "815-1", time.Millisecond)
	}
}
