package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"apply", "-f", "-"}, {"get", "vs"}, {"delete", "vs", "x"}, {"proxy", "status"}} {
		o := do(t, entry("x", ""), append(args, "--server", "127.0.0.1:1")...)
		if o.code != exitUnreachable || o.out != "" {
			t.Errorf("%v: %+v", args, o)
		}
		for _, word := range []string{"http://127.0.0.1:1", "--server", "PORTOLAN_SERVER", "portolan serve"} {
			if !strings.Contains(o.err, word) || strings.Count(o.err, "\n") != 1 {
				t.Errorf("%v: %q does not say %s", args, o.err, word)
			}
		}
	}
}

func TestServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	o := do(t, "", "get", "vs", "--server", server.URL, "--request-timeout", "50ms")
	if o.code != exitUnreachable || !strings.Contains(o.err, "waited 50ms, see --request-timeout") {
		t.Errorf("%+v", o)
	}
}

func TestExitCodesOfAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason metav1.StatusReason
		code   int32
		exit   int
	}{
		{metav1.StatusReasonBadRequest, 400, exitData},
		{metav1.StatusReasonUnauthorized, 401, exitForbidden},
		{metav1.StatusReasonForbidden, 403, exitForbidden},
		{metav1.StatusReasonNotFound, 404, exitFailure},
		{metav1.StatusReasonConflict, 409, exitConflict},
		{metav1.StatusReasonAlreadyExists, 409, exitFailure},
		{metav1.StatusReasonRequestEntityTooLarge, 413, exitData},
		{metav1.StatusReasonInvalid, 422, exitData},
		{metav1.StatusReasonInternalError, 500, exitFailure},
		{metav1.StatusReasonServiceUnavailable, 503, exitUnreachable},
	}
	for _, test := range tests {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(int(test.code))
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Message: "so it is", Reason: test.reason, Code: test.code,
			})
		}))
		o := do(t, entry("x", ""), "apply", "-f", "-", "--server", server.URL)
		server.Close()
		words := "so it is"
		if test.reason == metav1.StatusReasonRequestEntityTooLarge {
			words = "nothing was applied: so it is (--chunks N applies parts of at most N objects, each a change of its own)"
		}
		if want := (outcome{test.exit, "", "portolan: " + words + "\n"}); o != want {
			t.Errorf("%s: %+v", test.reason, o)
		}
	}
}
