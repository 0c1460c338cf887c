package main

import (
	"bytes"
	"io"
	"strings"
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
			terminal, shown := clitest.OpenTerminal(t)
			var out, errors bytes.Buffer
			if code := run(terminal, &errors, "diff", "-f", "-"); code != exit.Differences || errors.Len() > 0 {
				t.Fatalf("%d: %s", code, &errors)
			}
			text := shown()
			if got := strings.Contains(text, "\x1b[32m+  labels:\x1b[0m\n"); got != c.colours || !c.colours && strings.Contains(text, "\x1b") {
				t.Errorf("on a terminal: %q", text)
			}
			terminal, shown = clitest.OpenTerminal(t)
			if code := run(&out, terminal, "diff", "-f", "-"); code != exit.Differences || shown() != "" || strings.Contains(out.String(), "\x1b") || !strings.Contains(out.String(), "\n+  labels:\n") {
				t.Errorf("in a pipe: %d %q", code, &out)
			}
			terminal, shown = clitest.OpenTerminal(t)
			code := run(&out, terminal, "get", "se/none")
			if text := shown(); code == exit.OK || strings.HasPrefix(text, "\x1b[31mportolan:\x1b[0m serviceentry/default/none: not found") != c.colours || !c.colours && !strings.HasPrefix(text, "portolan: ") {
				t.Errorf("an error: %d %q", code, text)
			}
		})
	}
}
