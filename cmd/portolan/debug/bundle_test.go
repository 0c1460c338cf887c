package debug

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
)

// serverThat answers every path with an empty document, but for those that answers has.
func serverThat(t *testing.T, answers map[string]http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := answers[r.URL.Path]; answer != nil {
			answer(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"List","items":[]}`)
	}))
	t.Cleanup(s.Close)
	return s
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

func refused(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"viewers may not"}`)
}

// unpack returns the files of an archive and their names in order.
func unpack(t *testing.T, name string) (files map[string]string, order []string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for r := tar.NewReader(plain); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, order
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if header.Mode != 0o600 || !header.ModTime.Equal(clitest.Noon) {
			t.Errorf("%s: mode %o, time %s", header.Name, header.Mode, header.ModTime)
		}
		short, ok := strings.CutPrefix(header.Name, folder)
		if !ok {
			t.Errorf("%s is not in %s", header.Name, folder)
		}
		files[short], order = string(body), append(order, short)
	}
}

func atNoon(e *cli.Environment) { e.Now = clitest.Noon.Local }

// TestBundle: an archive has every part and a README that says what each is. A part that is
// refused is named in errors.txt and on standard error. A server that is not ready says why.
func TestBundle(t *testing.T) {
	t.Parallel()
	s := serverThat(t, map[string]http.HandlerFunc{
		"/metrics": text("portolan_store_up 1\n"),
		"/readyz": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "[-] cache: "+strings.Repeat("long ", 100)+"\nnot ready")
		},
		maintenance.LogPath:      refused,
		maintenance.SettingsPath: text(`{"items":[{"name":"consul-address","value":"http://ann:pw-of-ann@consul:8500"}]}`),
		maintenance.HeapPath:     text("\x1f\x8bput_looksLikeAToken12345"),
		"/apis/portolan.io/v1/proxyconfig": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"node":"`+r.URL.Query().Get("node")+`"}`)
		},
	})
	file := filepath.Join(t.TempDir(), "x.tar.gz")
	o := line.DoAs(t, "", atNoon, "debug", "bundle", file, "--node", "shop/web", "--server", s.URL)
	if o.Code != exit.Failure || !strings.HasPrefix(o.Out, "saved "+file+": 18 files, ") ||
		!strings.Contains(o.Err, "Warning: log.txt: viewers may not\n") || !strings.HasSuffix(o.Err, "x.tar.gz is not complete: 1 file missing in it, see above and its errors.txt") {
		t.Errorf("%+v", o)
	}
	files, order := unpack(t, file)
	var want []string
	for _, p := range parts() {
		if p.name != "log.txt" {
			want = append(want, p.name)
		}
	}
	if want = append(want, "proxy-1-shop_web.json", "errors.txt", "README"); !slices.Equal(order, want) {
		t.Errorf("the files are %v, want %v", order, want)
	}
	for name, has := range map[string]string{
		"metrics.txt": "portolan_store_up 1", "errors.txt": "log.txt: viewers may not\n", "readyz.txt": "\nnot ready", "proxy-1-shop_web.json": `"shop/web"`,
		"settings.json": "http://[redacted]@consul:8500", "heap.pprof": "put_looksLikeAToken12345", "README": "2026-01-31T12:00:00Z",
	} {
		if !strings.Contains(files[name], has) {
			t.Errorf("%s has no %q: %s", name, has, files[name])
		}
	}
	for _, name := range order {
		if name != "README" && !strings.Contains(files["README"], name+"\n    ") {
			t.Errorf("the README does not say what %s is", name)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// TestBundleInItsPlace: an archive replaces no file unless it is asked to, and leaves nothing
// else behind, also where the server gives nothing or is not there.
func TestBundleInItsPlace(t *testing.T) {
	t.Parallel()
	whole := serverThat(t, nil)
	nothing := httptest.NewServer(http.HandlerFunc(refused))
	t.Cleanup(nothing.Close)
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, server string
		flags        []string
		code         int
		says         string
	}{
		{"a file", whole.URL, []string{taken}, exit.Usage, "taken: file already exists: choose another name, or replace it with --force"},
		{"a directory", whole.URL, []string{dir, "--force"}, exit.Failure, "is a directory: name a file"},
		{"no directory", whole.URL, []string{filepath.Join(dir, "no", "x")}, exit.Failure, "no such file or directory"},
		{"no name", whole.URL, []string{""}, exit.Usage, "the name of the archive is empty: name a file, or leave it out"},
		{"a server that gives nothing", nothing.URL, []string{taken, "--force"}, exit.Forbidden, "viewers may not"},
		{"no server", "http://127.0.0.1:1", []string{taken, "--force"}, exit.Unreachable, "cannot reach the server"},
	} {
		o := line.DoAs(t, "", atNoon, append([]string{"debug", "bundle", "--server", c.server}, c.flags...)...)
		if o.Code != c.code || o.Out != "" || !strings.Contains(o.Err, c.says) {
			t.Errorf("%s: %+v", c.name, o)
		}
		if got, err := os.ReadFile(taken); err != nil || string(got) != "mine" {
			t.Errorf("%s: the file has %q, %v", c.name, got, err)
		}
	}
	o := line.DoAs(t, "", atNoon, "debug", "bundle", "--server", whole.URL, taken, "--force")
	info, err := os.Stat(taken)
	if o.Code != exit.OK || o.Err != "" || err != nil || info.Mode() != fs.FileMode(0o600) {
		t.Errorf("replaced: %+v, %v, %v", o, info, err)
	}
	if _, order := unpack(t, taken); !slices.Contains(order, "log.txt") || slices.Contains(order, "errors.txt") {
		t.Errorf("a complete one has %v", order)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}

// TestBundleOfAServerThatHangs: when the server stops to answer, what came before is saved and
// the rest is not waited for.
func TestBundleOfAServerThatHangs(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100)
	hangs := func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		<-r.Context().Done()
	}
	answers := map[string]http.HandlerFunc{maintenance.SettingsPath: hangs}
	answers["/readyz"], answers["/metrics"] = hangs, hangs
	s := serverThat(t, answers)
	file := filepath.Join(t.TempDir(), "x.tar.gz")
	o := line.DoAs(t, "", atNoon, "debug", "bundle", file, "--server", s.URL, "--request-timeout", "100ms")
	if o.Code != exit.Failure || !strings.Contains(o.Err, "Warning: metrics.txt: not asked for, since the server did not answer before\n") || !strings.Contains(o.Err, "see --request-timeout") {
		t.Errorf("%+v", o)
	}
	if len(asked) != maxUnanswered {
		t.Errorf("%d parts were waited for", len(asked))
	}
	if files, order := unpack(t, file); !slices.Equal(order, []string{"version.json", "errors.txt", "README"}) || strings.Count(files["errors.txt"], "\n") != len(parts())-1 {
		t.Errorf("%v: %s", order, files["errors.txt"])
	}
}
