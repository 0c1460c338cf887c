package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestWrongCommandLines: what cannot be understood says so in a line and where to read on, with the code
// of all usage errors.
func TestWrongCommandLines(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		"--frob":               "unknown flag: --frob\nSee 'portolan-agent --help'",
		"jion x":               `unknown command "jion" for "portolan-agent": did you mean portolan-agent join?` + "\nSee",
		"status --outptu json": "unknown flag: --outptu: did you mean --output?\nSee 'portolan-agent status --help'",
		"status -o xml":        `--output "xml": give json, or leave it out`,
		"join":                 "give one invitation: portolan machine invite prints the whole line\nSee 'portolan-agent join --help'",
		"run x":                `unknown command "x" for "portolan-agent run"` + "\nSee 'portolan-agent run --help'",
		"drain --timeout 5":    `--timeout "5": give a time with its unit, such as 30s or 5m` + "\nSee",
		"drain --timeout":      "--timeout needs a value: how long to wait",
		"capture frob":         `unknown command "frob" for "portolan-agent capture"` + "\nSee",
		"help nope":            `unknown command "nope" for "portolan-agent"` + "\nSee",
	} {
		var stdout, stderr bytes.Buffer
		code := execute(t.Context(), strings.Fields(line), &stdout, &stderr)
		if code != exit.Usage || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), "portolan-agent: "+says) {
			t.Errorf("%s: %d, %q", line, code, stderr.String())
		}
	}
	var stdout, stderr bytes.Buffer
	if code := execute(t.Context(), []string{"help", "exit-codes"}, &stdout, &stderr); code != exit.OK || !strings.Contains(stdout.String(), "  64  ") {
		t.Errorf("help exit-codes: %d, %s", code, stdout.String())
	}
}

// TestFaultsOfAFile: all faults are told, one a line, also where the file is read.
func TestFaultsOfAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	c := joined(filepath.Dir(file))
	c.Proxy.Name, c.Proxy.Namespace = "", ""
	if err := c.Write(file); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code := execute(t.Context(), []string{"run", "--config", file}, &stdout, &stderr)
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	if code != exit.Data || len(lines) != 3 || lines[0] != "portolan-agent: "+file+": 2 faults:" || !strings.HasPrefix(lines[1], "  proxy: ") || !strings.HasPrefix(lines[2], "  proxy: ") {
		t.Errorf("%d: %q", code, lines)
	}
	c.Proxy.Name = "vm"
	if err := c.Write(file); err != nil {
		t.Fatal(err)
	}
	stderr.Reset()
	if execute(t.Context(), []string{"run", "--config", file}, &stdout, &stderr); strings.Count(stderr.String(), "\n") != 1 || !strings.HasPrefix(stderr.String(), "portolan-agent: "+file+": proxy: ") {
		t.Errorf("one fault: %q", stderr.String())
	}
}
