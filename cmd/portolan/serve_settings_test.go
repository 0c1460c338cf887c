package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
)

// settingsIn writes a file of settings, and returns its name.
func settingsIn(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "serve.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestServeByAFile: a server takes its settings from a file, and the command line goes before it.
func TestServeByAFile(t *testing.T) {
	t.Parallel()
	file := settingsIn(t, "data-dir: /nowhere\napi-address: 127.0.0.1:0\napi-socket: ''\nmax-watches: 1\npprof: true\n")
	server, _, _ := serveIn(t, t.TempDir(), "--config", file)
	answer, err := http.Get(server + serve.ProfilesPath + "cmdline")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("pprof: true has no effect: %s", answer.Status)
	}
}

// TestPrintConfig: what it prints is a file that means the same.
func TestPrintConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := settingsIn(t, "data-dir: "+dir+"\napi-name: [mesh.example.com]\nmax-watches: 7\n")
	first := do(t, "", "serve", "--config", file, "--print-config", "--max-watches", "9", "--store-quota", "3Gi", "--token-file", "cp.token")
	if first.Code != exit.OK || first.Err != "" {
		t.Fatalf("%+v", first)
	}
	for _, line := range []string{
		"data-dir: " + dir, "api-name: [mesh.example.com]", "max-watches: 9", "store-quota: 3Gi", "token-file: cp.token",
		"# backup-interval: 1h0m0s", "# http3: false", "## The store", "# log-level: info",
	} {
		if !strings.Contains("\n"+first.Out, "\n"+line+"\n") {
			t.Errorf("no line %q:\n%s", line, first.Out)
		}
	}
	if again := do(t, "", "serve", "--config", settingsIn(t, first.Out), "--print-config"); again != first {
		t.Errorf("what is printed means\n%+v", again)
	}
	if none := do(t, "", "serve", "--print-config"); do(t, "", "serve", "--config", settingsIn(t, none.Out), "--print-config") != none {
		t.Errorf("without settings: %+v", none)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("it left %v, %v", entries, err)
	}
	for _, secret := range []string{"--token", "--etcd-password"} {
		if o := do(t, "", "serve", "--print-config", secret, "sesame"); strings.Contains(o.Out, "sesame") {
			t.Errorf("%s is printed: %s", secret, o.Out)
		}
	}
}

// TestSettingsThatCannotBe: all faults of the file and of the command line come at once, each with its
// place, and nothing is done.
func TestSettingsThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := settingsIn(t, "backup-interval: 10s\nhttp3: 1\nmax-watch: 4\ndrain-time: -1s\ndata-dir: "+dir+"\n")
	o := do(t, "", "serve", "--config", file, "--max-first-syncs", "0")
	want := "portolan: 5 faults:\n  " + file + ":2: http3: \"1\": give true or false\n  " + file + ":3: max-watch: is no setting: did you mean max-watches?\n  " +
		file + ":1: backup-interval: is of no use without --backup-dir\n  " + file + ":4: drain-time: -1s is not between 0 and 1h0m0s\n  --max-first-syncs: 0 is less than 1\n"
	if o.Code != exit.Data || o.Err != want {
		t.Errorf("%+v, want\n%s", o, want)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("it left %v, %v", entries, err)
	}
	missing := filepath.Join(dir, "none.yaml")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--config " + missing, exit.Data, "--config: open " + missing + ": no such file"},
		{"--config " + dir, exit.Data, "is a directory"},
		{"--config " + settingsIn(t, ""), exit.Data, "is empty"},
		{"--config " + settingsIn(t, "a: ["), exit.Data, "is not YAML"},
		{"--config " + settingsIn(t, "http3: true\n---\n"), exit.Data, "a second document begins here"},
		{"--config " + settingsIn(t, "http3: true\nhttp3: true\n"), exit.Data, ":2: http3: is in line 1 too"},
		{"--config " + settingsIn(t, "config: x\n"), exit.Data, "is for the command line alone"},
		{"--config " + settingsIn(t, "token: x\n"), exit.Data, "is a secret"},
		{"--config=", exit.Usage, "--config: is empty"},
		{"--print-config --max-watches 0", exit.Usage, "--max-watches: 0 is less than 1"},
	} {
		if o := do(t, "", append([]string{"serve"}, strings.Fields(c.args)...)...); o.Code != c.code || !strings.Contains(o.Err, c.says) || o.Out != "" {
			t.Errorf("%s: %+v, want %d and %q", c.args, o, c.code, c.says)
		}
	}
}
