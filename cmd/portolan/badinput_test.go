package main

import (
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// everyCommand returns the commands that do something, by the words that call them.
func everyCommand() map[string]*cobra.Command {
	root := cli.NewRootCommand(&cli.Environment{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Now: time.Now, Schemas: schema.Pilot()}, whole())
	out := map[string]*cobra.Command{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if words := strings.TrimPrefix(c.CommandPath(), "portolan "); words != "portolan" && c.Name() != "help" && c.Runnable() && (!c.HasSubCommands() || c.Use != c.Name()) {
			out[words] = c
		}
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(root)
	return out
}

// badInput has the files that the arguments of usages name.
type badInput struct {
	dir     string
	present *strings.Replacer
}

func newBadInput(t *testing.T) *badInput {
	t.Helper()
	dir := clitest.Write(t, map[string]string{"good.yaml": clitest.Entry("x", ""), "token": "put_" + strings.Repeat("A", 52), "empty": "", "binary": "\x7fELF\x00\x01\xff\xfe\x80", "other": "spec: [unclosed\n\t- x: {"})
	authority := securetest.New(t, "authority")
	files := authority.Write(t, t.TempDir(), authority.Issue(t, securetest.Leaf{Names: []string{"ann"}}))
	return &badInput{dir, strings.NewReplacer("FILE", filepath.Join(dir, "good.yaml"), "DIR", dir, "TOKEN", filepath.Join(dir, "token"), "CERT", files.Cert, "KEY", files.Key)}
}

// line returns the arguments of a command that usages writes with names of files.
func (f *badInput) line(command, arguments string) []string {
	return append(strings.Fields(command), strings.Fields(f.present.Replace(arguments))...)
}

// file returns the path of one of the files.
func (f *badInput) file(name string) string { return filepath.Join(f.dir, name) }

// write returns the path of a new file.
func (f *badInput) write(t *testing.T, text string) string {
	t.Helper()
	return filepath.Join(clitest.Write(t, map[string]string{"x": text}), "x")
}

// oneClearError fails the test unless a command failed with a code, printed nothing else than one
// error of few lines, and the error contains some words.
func oneClearError(t *testing.T, args []string, o clitest.Outcome, code int, words ...string) {
	t.Helper()
	what := strings.Join(args, " ")
	if o.Code != code || o.Out != "" {
		t.Errorf("%s: exit code %d, want %d: %q %s", what, o.Code, code, o.Out, o.Err)
	}
	for _, word := range words {
		if !strings.Contains(o.Err, word) {
			t.Errorf("%s: %q does not say %q", what, o.Err, word)
		}
	}
	text := o.Err
	if first, rest, _ := strings.Cut(text, "\n"); strings.HasPrefix(first, "No server listens at ") {
		text = rest
	}
	if lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n"); !strings.HasPrefix(text, "portolan: ") || strings.Count(text, "portolan: ") != 1 || len(lines) > 4 || len(text) > 1500 {
		t.Errorf("%s: it is not one clear error: %.2000s", what, o.Err)
	}
	for _, noise := range []string{"panic", "goroutine", "level=", "Usage:", "%!", "<nil>"} {
		if strings.Contains(o.Err, noise) {
			t.Errorf("%s: the error says %q: %s", what, noise, o.Err)
		}
	}
}

// TestBadInputOfEveryCommand: wrong, missing and surplus arguments, flags with values of another
// type, servers that cannot be or are not, contexts and tokens that are none: each gives one clear
// error and its exit code, and no server is changed.
func TestBadInputOfEveryCommand(t *testing.T) {
	t.Parallel()
	all := everyCommand()
	for _, name := range slices.Sorted(maps.Keys(usages)) {
		if all[name] == nil {
			t.Errorf("there is no command %s", name)
		}
	}
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	before := a.Must(t, "", "get", "se", "-A", "-o", "yaml")
	f := newBadInput(t)
	t.Run("commands", func(t *testing.T) {
		for name, c := range all {
			use, known := usages[name]
			if !known {
				t.Errorf("%s has no row in usages: say how it is used well", name)
				continue
			}
			good := f.line(name, use.good)
			refused := func(code int, words []string, more ...string) {
				t.Helper()
				args := append(slices.Clone(good), more...)
				oneClearError(t, args, do(t, "", args...), code, words...)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				refused(exit.Usage, []string{"--no-such-flag"}, "--no-such-flag")
				if !use.many {
					refused(exit.Usage, nil, "one", "two", "three", "four")
				}
				if !use.bare {
					bare := strings.Fields(name)
					oneClearError(t, bare, do(t, "", bare...), exit.Usage)
				}
				c.LocalNonPersistentFlags().VisitAll(func(one *pflag.Flag) {
					switch one.Value.Type() {
					case "bool", "int", "int64", "uint16", "duration":
						if one.Name != "help" {
							refused(exit.Usage, []string{"--" + one.Name, "nonsense"}, "--"+one.Name+"=nonsense")
						}
					}
				})
				if c.Flags().Lookup("output") != nil {
					refused(exit.Usage, []string{"nonsense"}, "--output=nonsense")
				}
				if use.offline {
					return
				}
				for server, says := range map[string]string{
					"file:///etc/hosts": "file", "http://[::1": "http://[::1", "https://": "https://", "http://mesh example": "mesh example", "ftp://mesh.example": "ftp",
					"http://127.0.0.1:notaport": "notaport",
				} {
					refused(exit.Usage, []string{says}, "--server", server)
				}
				refused(exit.Unreachable, []string{"127.0.0.1:1"}, "--server", "http://127.0.0.1:1", "--request-timeout", "50ms")
				refused(exit.Unreachable, []string{"is of no authority that is trusted here"}, "--server", untrusted.URL, "--request-timeout", "10s")
				if !use.makesContext {
					refused(exit.Data, []string{`there is no context "nowhere"`}, "--context", "nowhere", "--server", a.URL)
				}
				refused(exit.Data, []string{f.file("none")}, "--token-file", f.file("none"), "--server", a.URL)
				refused(exit.Data, []string{f.dir}, "--token-file", f.dir, "--server", a.URL)
				refused(exit.Data, []string{f.file("empty")}, "--token-file", f.file("empty"), "--server", a.URL)
			})
		}
	})
	if after := a.Must(t, "", "get", "se", "-A", "-o", "yaml"); after != before {
		t.Errorf("something is changed:\n%s", after)
	}
}
