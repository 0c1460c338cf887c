package objects

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestApplyOfURLs: a file is fetched within its bounds, and what is none is refused with one line.
func TestApplyOfURLs(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/x.yaml", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(clitest.Entry("x", ""))) })
	mux.Handle("/moved", http.RedirectHandler("/x.yaml", http.StatusFound))
	mux.Handle("/forever", http.RedirectHandler("/forever", http.StatusFound))
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte("<html>"))
	})
	mux.HandleFunc("/broken.yaml", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("kind: [")) })
	mux.HandleFunc("/large.yaml", func(w http.ResponseWriter, _ *http.Request) {
		line := []byte(strings.Repeat("#", 1<<20))
		for range maxFetched>>20 + 1 {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/private", func(w http.ResponseWriter, r *http.Request) {
		if name, password, _ := r.BasicAuth(); name != "ann" || password != "s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte("kind: Pod"))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	gone := httptest.NewServer(mux)
	gone.Close()
	clitest.Same(t, "a file", a.Must(t, "", "apply", "-f", server.URL+"/x.yaml"), "serviceentry/default/x  created  rev 2\n")
	clitest.Same(t, "moved", a.Must(t, clitest.Entry("w", ""), "apply", "-f", server.URL+"/moved", "-f", "-"),
		"serviceentry/default/x  unchanged  rev 2\nserviceentry/default/w  created    rev 3\n")
	clitest.Same(t, "no difference", a.Must(t, "", "diff", "-f", server.URL+"/x.yaml"), "")
	clitest.Same(t, "deleted", a.Must(t, "", "delete", "-f", server.URL+"/x.yaml"), "serviceentry/default/x  deleted  rev 4\n")
	before := a.Store.Version()
	private := strings.Replace(server.URL, "http://", "http://ann:s3cret@", 1) + "/private"
	for url, says := range map[string]string{
		server.URL + "/nope":        "-f " + server.URL + "/nope: the answer is 404 Not Found\n",
		server.URL + "/forever":     "-f " + server.URL + "/forever: there are more than 5 redirects\n",
		server.URL + "/page":        "-f " + server.URL + "/page: the answer is a web page, and no file with objects: give the URL of the file itself\n",
		server.URL + "/large.yaml":  "-f " + server.URL + "/large.yaml: is larger than 32 MiB\n",
		server.URL + "/broken.yaml": server.URL + "/broken.yaml: document 1 (line 1): not valid YAML",
		gone.URL + "/x.yaml":        "connection refused\n",
		"https://":                  "-f https://: is no URL of a file: give http://HOST/PATH or https://HOST/PATH\n",
		private:                     strings.Replace(private, "s3cret", "xxxxx", 1) + ": document 1 (line 1): pod: apiVersion: is missing",
	} {
		o := a.Do(t, "", "apply", "-f", url)
		if o.Code != exit.Data || o.Out != "" || !strings.HasPrefix(o.Err, "portolan: nothing was applied: ") || !strings.Contains(o.Err, says) || strings.Contains(o.Err, "s3cret") {
			t.Errorf("%s: %+v", url, o)
		}
	}
	if v := a.Store.Version(); v != before {
		t.Errorf("the store went from %s to %s", before, v)
	}
}

// TestRedirectsStayEncrypted: what is asked by https does not come by http.
func TestRedirectsStayEncrypted(t *testing.T) {
	t.Parallel()
	to := func(url string) *http.Request { return httptest.NewRequest(http.MethodGet, url, nil) }
	if err := checkRedirect(to("http://x/y"), []*http.Request{to("https://x/y")}); err == nil || !strings.Contains(err.Error(), "from https to http://x/y") {
		t.Errorf("from https to http: %v", err)
	}
	for _, before := range []string{"https://x", "http://x"} {
		if err := checkRedirect(to("https://x/y"), []*http.Request{to(before)}); err != nil {
			t.Errorf("%s: %v", before, err)
		}
	}
}
