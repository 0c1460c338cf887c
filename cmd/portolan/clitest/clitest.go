// Package clitest runs command lines in tests of the commands.
package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// RunTests runs the tests of a package of commands, without the settings of whoever runs them.
// They must leave no goroutine behind, apart from those that they name.
func RunTests(m *testing.M, left ...goleak.Option) {
	for _, name := range []string{"SERVER", "NAMESPACE", "CONTEXT", "TOKEN", "TOKEN_FILE"} {
		_ = os.Unsetenv("PORTOLAN_" + name)
	}
	_ = os.Setenv("PORTOLAN_CONFIG", os.DevNull+".none")
	_ = os.Unsetenv("NO_COLOR")
	_ = os.Setenv("TERM", "xterm")
	goleak.VerifyTestMain(m, left...)
}

// CommandLine is a program whose command lines a test runs.
type CommandLine cli.Program

// Outcome is the result of a command line.
type Outcome struct {
	Code     int
	Out, Err string
}

// Do runs a command line.
func (l CommandLine) Do(t testing.TB, stdin string, args ...string) Outcome {
	t.Helper()
	var out, err bytes.Buffer
	code := cli.Run(t.Context(), cli.Program(l), args, strings.NewReader(stdin), &out, &err)
	return Outcome{code, out.String(), err.String()}
}

// Noon is the time at which serving runs commands.
var Noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// DoAs runs a command line in an environment that differ has changed. What it printed as an
// error ends with the error that it returned.
func (l CommandLine) DoAs(t testing.TB, stdin string, differ func(*cli.Environment), args ...string) Outcome {
	t.Helper()
	var out, stderr bytes.Buffer
	env := &cli.Environment{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &stderr, Now: time.Now, Schemas: schema.Pilot()}
	differ(env)
	root := cli.NewRootCommand(env, cli.Program(l))
	root.SetArgs(args)
	err := root.ExecuteContext(context.WithoutCancel(t.Context()))
	if err != nil {
		stderr.WriteString(err.Error())
	}
	return Outcome{exit.Of(err), out.String(), stderr.String()}
}

// AtTerminal is an environment with a user to ask.
func AtTerminal(e *cli.Environment) { e.Terminal = true }

// Serving runs a command against a server that answers every request with the result of
// answer.
func (l CommandLine) Serving(t testing.TB, answer func(*http.Request) any, args ...string) (Outcome, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, ok := answer(r).(string); ok {
			_, _ = io.WriteString(w, text)
			return
		}
		_ = json.NewEncoder(w).Encode(answer(r))
	}))
	defer server.Close()
	var out, stderr bytes.Buffer
	root := cli.NewRootCommand(&cli.Environment{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &stderr, Now: func() time.Time { return Noon }, Schemas: schema.Pilot()}, cli.Program(l))
	root.SetArgs(append(args, "--server", server.URL))
	err := root.ExecuteContext(context.WithoutCancel(t.Context()))
	return Outcome{exit.OK, out.String(), stderr.String()}, err
}

// API is a running config API, and a command line that uses it.
type API struct {
	*resttest.Server
	Line CommandLine
}

// StartAPI starts a config API.
func (l CommandLine) StartAPI(t testing.TB) API {
	t.Helper()
	return l.On(resttest.Start(t, 0, nil))
}

// On is the command line with a running config API.
func (l CommandLine) On(server *resttest.Server) API { return API{server, l} }

// Do runs a command line that uses the API.
func (a API) Do(t testing.TB, stdin string, args ...string) Outcome {
	t.Helper()
	return a.Line.Do(t, stdin, append(args, "--server", a.URL)...)
}

// Must runs a command that must succeed, and returns its output.
func (a API) Must(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	o := a.Do(t, stdin, args...)
	if o.Code != exit.OK {
		t.Fatalf("%v: exit code %d: %s", args, o.Code, o.Err)
	}
	return o.Out
}

// Write makes files in a new directory, from names and contents.
func Write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Same compares texts.
func Same(t testing.TB, what, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Entry returns a ServiceEntry with meta added to its metadata.
func Entry(name, meta string) string {
	return `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ` + name + meta + `}
spec:
  hosts: [` + name + `.shop]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.1}]
`
}

// HasLine says whether a line contains these words, in order.
func HasLine(text string, words []string) bool {
	for line := range strings.Lines(text) {
		at := 0
		for _, word := range words {
			i := strings.Index(line[at:], word)
			if i < 0 {
				at = -1
				break
			}
			at += i + len(word)
		}
		if at >= 0 {
			return true
		}
	}
	return false
}
