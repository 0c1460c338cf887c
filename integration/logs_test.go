package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
)

// logLine is a line of a log in JSON.
type logLine struct{ Time, Level, Msg, Component, Process string }

// logLines returns the lines of a log. Each must be JSON, with the keys that all have.
func logLines(t *testing.T, text string) []logLine {
	t.Helper()
	var out []logLine
	for text := range strings.Lines(text) {
		var line logLine
		if !strings.HasSuffix(text, "\n") {
			continue // it is being written
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Time == "" || line.Level == "" || line.Msg == "" ||
			!slices.Contains(loglevel.Components(), loglevel.Component(line.Component)) {
			t.Errorf("%v: the line %q is %+v", err, text, line)
		}
		out = append(out, line)
	}
	return out
}

// TestLogsInJSON: with --log-format json each line of a server is JSON, those of its store process too,
// and the levels of both change while they run.
func TestLogsInJSON(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := &server{t: t, o: serverOptions{dataDir: dir, args: []string{"--log-format", "json", "--log-level", "debug,xds=error"}}, api: local(freePort(t)), xds: local(freePort(t)), client: clientOf(t)}
	s.launch()
	await := func(what string, is func(logLine) bool) {
		t.Helper()
		eventually(t, what, func() error {
			if !s.process.running() {
				t.Fatalf("the server has ended: %s", s.process.tail())
			}
			if !slices.ContainsFunc(logLines(t, s.process.output()), is) {
				return errors.New("the log has no such line")
			}
			return nil
		})
	}
	await("the server is ready", func(l logLine) bool { return l.Msg == "ready" })
	portolan := func(stdin string, args ...string) {
		t.Helper()
		c := exec.Command(binary, append(args, "--server", "unix:"+dir+"/api.sock")...)
		c.Stdin = strings.NewReader(stdin)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", args, err, out)
		}
	}
	ofEtcd := func(l logLine) bool { return l.Process == "store" && l.Component == "etcd" && l.Level == "DEBUG" }
	if slices.ContainsFunc(logLines(t, s.process.output()), ofEtcd) {
		t.Error("etcd logs its details unasked")
	}
	portolan("", "server", "log-level", "etcd=debug")
	portolan(entry("one", 80), "apply", "-f", "-")
	await("etcd logs its details", ofEtcd)
	portolan("", "server", "log-level", "debug")
	for _, address := range []string{s.api, s.xds} {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_, err = fmt.Fprint(conn, "no protocol of ours\r\n\r\n")
			_ = conn.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.process.terminate(t); err != nil {
		t.Error(err)
	}
	components := map[string]int{}
	for _, line := range logLines(t, s.process.output()) {
		components[line.Component]++
	}
	for _, of := range []loglevel.Component{loglevel.Server, loglevel.Store, loglevel.Etcd, loglevel.Jobs, loglevel.Cache} {
		if components[string(of)] == 0 {
			t.Errorf("no line is of %s: %v", of, components)
		}
	}
}
