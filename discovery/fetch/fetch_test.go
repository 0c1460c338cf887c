package fetch_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/fetch"
)

// TestGet: a document is got within its bounds, and what is not got has an error that names the URL.
func TestGet(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/text", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Accept", r.Header.Get("Accept"))
		_, _ = w.Write([]byte("text"))
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 9)) })
	mux.Handle("/moved", http.RedirectHandler("/text", http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	mux.Handle("/bad", http.RedirectHandler("/forbidden", http.StatusFound))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	client, err := fetch.NewClient(fetch.Options{
		Check: func(first, to *url.URL) error {
			if to.Path == "/forbidden" {
				return errors.New(to.Path + " is forbidden from " + first.Path)
			}
			return nil
		},
		Accept: "text/plain", Timeout: time.Minute, MaxBytes: 8, TooLarge: "more than 8 bytes",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	for path, want := range map[string]string{
		"/text": "text", "/moved": "text", "/large": web.URL + "/large: it has more than 8 bytes", "/none": web.URL + "/none: it answers 404 Not Found",
		"/round": web.URL + "/round: it redirects more than 3 times", "/bad": web.URL + "/bad: /forbidden is forbidden from /bad",
		"/forbidden": "/forbidden is forbidden from /forbidden",
	} {
		content, header, err := client.Get(t.Context(), web.URL+path)
		got := string(content)
		if err != nil {
			got = err.Error()
		}
		if got != want || err == nil && header.Get("X-Accept") != "text/plain" {
			t.Errorf("%s: %q %v, want %q", path, got, header, want)
		}
	}
	if _, err := fetch.NewClient(fetch.Options{CA: "none"}); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("authorities that are none: %v", err)
	}
}

// TestEntersThisMachine: nobody elsewhere leads to what listens on this machine alone.
func TestEntersThisMachine(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]bool{
		{"https://a.example", "http://localhost:1"}: true, {"https://a.example", "https://[::1]"}: true,
		{"http://127.0.0.1", "http://localhost"}: false, {"http://127.0.0.1", "https://a.example"}: false,
	} {
		from, _ := url.Parse(pair[0])
		to, _ := url.Parse(pair[1])
		if got := fetch.EntersThisMachine(from, to); got != want {
			t.Errorf("%v: %t", pair, got)
		}
	}
}
