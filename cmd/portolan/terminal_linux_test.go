package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestColours: a terminal shows colours, unless the user wants none; a pipe gets none beside it.
func TestColours(t *testing.T) {
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	for _, c := range []struct {
		name, variable, value string
		colours               bool
	}{
		{"a terminal", "TERM", "xterm", true},
		{"NO_COLOR", "NO_COLOR", "1", false},
		{"an empty NO_COLOR", "NO_COLOR", "", true},
		{"a terminal without colours", "TERM", "dumb", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			run := func(out, err io.Writer, args ...string) int {
				return cli.Run(t.Context(), whole(), append(args, "--server", a.URL), strings.NewReader(clitest.Entry("x", ", labels: {a: b}")), out, err)
			}
			terminal := clitest.OpenTerminal(t)
			var out, errors bytes.Buffer
			if code := run(terminal.File, &errors, "diff", "-f", "-"); code != exit.Differences || errors.Len() > 0 {
				t.Fatalf("%d: %s", code, &errors)
			}
			text := terminal.Shown()
			if got := strings.Contains(text, "\x1b[32m+  labels:\x1b[0m\n"); got != c.colours || !c.colours && strings.Contains(text, "\x1b") {
				t.Errorf("on a terminal: %q", text)
			}
			terminal = clitest.OpenTerminal(t)
			if code := run(&out, terminal.File, "diff", "-f", "-"); code != exit.Differences || terminal.Shown() != "" || strings.Contains(out.String(), "\x1b") || !strings.Contains(out.String(), "\n+  labels:\n") {
				t.Errorf("in a pipe: %d %q", code, &out)
			}
			terminal = clitest.OpenTerminal(t)
			code := run(&out, terminal.File, "get", "se/none")
			if text := terminal.Shown(); code == exit.OK || strings.HasPrefix(text, "\x1b[31mportolan:\x1b[0m serviceentry/default/none: not found") != c.colours || !c.colours && !strings.HasPrefix(text, "portolan: ") {
				t.Errorf("an error: %d %q", code, text)
			}
		})
	}
}

// TestProgressAtATerminal: what takes long tells on the terminal how far it is, and erases that. A
// pipe gets what it gets of what is quick.
func TestProgressAtATerminal(t *testing.T) {
	t.Parallel()
	server, _, _ := serveIn(t, t.TempDir())
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	if o := do(t, clitest.Entry("x", ""), "apply", "-f", "-", "--server", server); o.Code != exit.OK {
		t.Fatal(o.Err)
	}
	file := filepath.Join(clitest.Write(t, map[string]string{"x": clitest.Entry("x", "")}), "x")
	for _, c := range []struct{ name, args, words string }{
		{"apply", "apply -f FILE", "1 object: waiting for the server  "},
		{"apply in parts", "apply --chunks 1 -f FILE", "part 1 of 1: objects 1-1: waiting for the server  "},
		{"import", "import -f FILE", "1 object: waiting for the server  "},
		{"delete", "delete se/none --ignore-not-found --yes", "1 object: waiting for the server  "},
		{"export", "export", "read 0 objects, reading "},
		{"diff of revisions", "diff --from 1 --to 1", "read 0 objects, reading "},
		{"backup", "store backup DIR/NAME --without-keys", "waiting for the snapshot  "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			terminal := clitest.OpenTerminal(t)
			told := sync.OnceValue(func() bool { return terminal.Await("\r\x1b[K" + c.words) })
			forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
			slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !told() {
					t.Errorf("the terminal does not show %q", c.words)
				}
				forward.ServeHTTP(w, r)
			}))
			defer slow.Close()
			run := func(stderr io.Writer, server, name string) (string, int) {
				var out bytes.Buffer
				args := strings.Fields(strings.NewReplacer("FILE", file, "DIR", filepath.Dir(file), "NAME", c.name+name).Replace(c.args))
				code := cli.Run(t.Context(), whole(), append(args, "--server", server), strings.NewReader(""), &out, stderr)
				return out.String(), code
			}
			out, code := run(terminal.File, slow.URL, "1")
			shown := terminal.Shown()
			left := shown[strings.LastIndex(shown, "\x1b[K")+len("\x1b[K"):]
			var piped bytes.Buffer
			same, sameCode := run(&piped, server, "2")
			if plain := regexp.MustCompile(`\x1b\[[0-9]*m`).ReplaceAllString(left, ""); strings.Count(out, "\n") != strings.Count(same, "\n") || code != sameCode || strings.ReplaceAll(plain, c.name+"1", c.name+"2") != piped.String() {
				t.Errorf("%d %q %q, and in a pipe %d %q %q", code, out, left, sameCode, same, &piped)
			}
			if strings.Contains(out+same+piped.String(), "\x1b") || strings.Contains(piped.String(), "waiting for the s") {
				t.Errorf("in a pipe: %q", &piped)
			}
		})
	}
}
