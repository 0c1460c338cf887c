// Package logtest is a log in memory, for tests that count its lines or wait for one.
package logtest

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long Await waits.
const patience = 30 * time.Second

// Log is a log in memory, for any number of goroutines. The zero Log is empty.
type Log struct {
	mu   sync.Mutex // guards the fields below
	text bytes.Buffer
	more chan struct{} // closed at the next write; nil if nobody waits
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return l.text.Write(p)
}

// String returns the whole log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns how often the log contains a text.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }

// read returns the log, and a channel that is closed when there is more.
func (l *Log) read() (text string, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return l.text.String(), l.more
}

// Await waits until the log of a program matches a pattern, and returns the match and its groups. It
// ends the test if there is none within 30 seconds, or if the program ends before. ended, which has a
// buffer, then has what the program ended with again; nil is for a program that does not say.
func Await[E any](t testing.TB, l *Log, pattern *regexp.Regexp, ended chan E) []string {
	t.Helper()
	for limit := time.After(patience); ; {
		text, more := l.read()
		if found := pattern.FindStringSubmatch(text); found != nil {
			return found
		}
		select {
		case <-more:
		case end := <-ended:
			ended <- end
			t.Fatalf("the program ended with %v, and its log has no %s:\n%s", end, pattern, l)
		case <-limit:
			t.Fatalf("the log has no %s:\n%s", pattern, l)
		}
	}
}
