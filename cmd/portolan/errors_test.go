package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"apply", "-f", "-"}, {"get", "vs"}, {"delete", "vs", "x"}, {"proxy", "status"}} {
		o := do(t, clitest.Entry("x", ""), append(args, "--server", "127.0.0.1:1", "--request-timeout", "500ms")...)
		if o.Code != exit.Unreachable || o.Out != "" {
			t.Errorf("%v: %+v", args, o)
		}
		for _, word := range []string{"http://127.0.0.1:1", "--server", "PORTOLAN_SERVER", "portolan serve"} {
			if !strings.Contains(o.Err, word) || strings.Count(o.Err, "\n") != 2 || !strings.HasPrefix(o.Err, "No server listens at 127.0.0.1:1 yet; waiting") {
				t.Errorf("%v: %q does not say %s", args, o.Err, word)
			}
		}
	}
}

// TestServerThatStarts: a command that runs while the server is starting waits for it.
func TestServerThatStarts(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	target, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = a.HTTP.Transport
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: time.Minute}
	t.Cleanup(func() { _ = server.Close() })
	messages := startOnWrite{start: sync.OnceFunc(func() {
		again, err := net.Listen("tcp", address)
		if err != nil {
			t.Errorf("listen again: %v", err)
			return
		}
		go func() { _ = server.Serve(again) }()
	})}
	var out bytes.Buffer
	code := cli.Run(t.Context(), whole(), []string{"apply", "-f", "-", "--server", "http://" + address}, strings.NewReader(clitest.Entry("x", "")), &out, &messages)
	if code != exit.OK || out.String() != "serviceentry/default/x  created  rev 2\n" {
		t.Errorf("%d: %s", code, out.String())
	}
	clitest.Same(t, "told once", messages.String(), "No server listens at http://"+address+" yet; waiting up to 5s for it.\n")
}

// startOnWrite calls start when the first line is written.
type startOnWrite struct {
	strings.Builder
	start func()
}

func (w *startOnWrite) Write(line []byte) (int, error) {
	w.start()
	return w.Builder.Write(line)
}

func TestServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	for _, line := range []string{"get vs", "wait --revision 5"} {
		o := do(t, "", append(strings.Fields(line), "--server", server.URL, "--request-timeout", "50ms")...)
		want := "portolan: no answer from the server at " + server.URL + ": context deadline exceeded (waited 50ms, see --request-timeout)\n"
		if o != (clitest.Outcome{Code: exit.Unreachable, Err: want}) {
			t.Errorf("%s: %+v", line, o)
		}
	}
}

func TestExitCodesOfAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason metav1.StatusReason
		code   int32
		exit   int
	}{
		{metav1.StatusReasonBadRequest, 400, exit.Data},
		{metav1.StatusReasonUnauthorized, 401, exit.Forbidden},
		{metav1.StatusReasonForbidden, 403, exit.Forbidden},
		{metav1.StatusReasonNotFound, 404, exit.Failure},
		{metav1.StatusReasonConflict, 409, exit.Conflict},
		{metav1.StatusReasonAlreadyExists, 409, exit.Failure},
		{metav1.StatusReasonRequestEntityTooLarge, 413, exit.Data},
		{metav1.StatusReasonInvalid, 422, exit.Data},
		{metav1.StatusReasonInternalError, 500, exit.Failure},
		{metav1.StatusReasonServiceUnavailable, 503, exit.Unreachable},
	}
	for _, test := range tests {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(int(test.code))
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Message: "so it is", Reason: test.reason, Code: test.code,
			})
		}))
		o := do(t, clitest.Entry("x", ""), "apply", "-f", "-", "--server", server.URL)
		server.Close()
		words := "so it is"
		if test.reason == metav1.StatusReasonRequestEntityTooLarge {
			words = "nothing was applied: so it is (--chunks N applies parts of at most N objects, each a change of its own)"
		}
		if want := (clitest.Outcome{Code: test.exit, Err: "portolan: " + words + "\n"}); o != want {
			t.Errorf("%s: %+v", test.reason, o)
		}
	}
}
