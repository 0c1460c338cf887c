package serve

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
)

// recordingHandler is an API whose handler the test provides.
type recordingHandler struct{ http.HandlerFunc }

func (a recordingHandler) Handler() http.Handler { return a }
func (recordingHandler) EndWatches()             {}

// serveAsked serves until stop is called; stop returns the log.
func serveAsked(t *testing.T, answer http.HandlerFunc) (address string, stop func() string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	logger := slog.New(slog.NewTextHandler(&log, nil))
	go func() { ended <- serveAPI(ctx, recordingHandler{answer}, newExcess(logger), logger, l) }()
	return l.Addr().String(), func() string {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return log.String()
	}
}

const tookTooLong = "requests took too long"

func TestStopLetsRequestsEnd(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	address, stop := serveAsked(t, func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-goOn
		_, _ = io.WriteString(w, "done")
	})
	answer := make(chan string, 1)
	go func() { answer <- fetch(t, address) }()
	<-begun
	log := make(chan string, 1)
	go func() { log <- stop() }()
	close(goOn)
	if got := <-answer; got != "done" {
		t.Errorf("the request under way is answered %q", got)
	}
	if got := <-log; got != "" {
		t.Errorf("nothing was in the way of the stop:\n%s", got)
	}
}

func TestStopCancelsRequests(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	address, stop := serveAsked(t, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		_, _ = io.WriteString(w, "it was cancelled")
	})
	answer := make(chan string, 1)
	go func() { answer <- fetch(t, address) }()
	<-begun
	if log := stop(); !strings.Contains(log, tookTooLong) {
		t.Errorf("it says nothing of a request that it cancelled:\n%s", log)
	}
	if got := <-answer; got != "it was cancelled" {
		t.Errorf("the request is answered %q", got)
	}
}

// TestStopLeavesRequests: a request that ignores its cancellation does not keep the server
// running.
func TestStopLeavesRequests(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	address, stop := serveAsked(t, func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-goOn
	})
	answer := make(chan string, 1)
	go func() { answer <- fetch(t, address) }()
	<-begun
	stop()
	if got := <-answer; !strings.Contains(got, "EOF") {
		t.Errorf("the connection ends with %q", got)
	}
	close(goOn)
}

// TestStopHangsUpOnTheSilent: a connection without a request does not delay the stop.
func TestStopHangsUpOnTheSilent(t *testing.T) {
	t.Parallel()
	address, stop := serveAsked(t, func(http.ResponseWriter, *http.Request) {})
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	fetch(t, address) // now all earlier connections are accepted
	if log := stop(); log != "" {
		t.Errorf("nothing was in the way of the stop:\n%s", log)
	}
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("the connection is told %d bytes", n)
	}
}

// fetch returns the body of an answer, or the text of the error.
func fetch(t *testing.T, address string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address, strings.NewReader("x"))
	if err != nil {
		return err.Error()
	}
	answer, err := client.Do(r)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}
