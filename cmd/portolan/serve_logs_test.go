package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/storage/logtest"
)

// awaitLog waits until the log has a match, and returns it.
func awaitLog(t *testing.T, log *logtest.Log, pattern string) string {
	t.Helper()
	return logtest.Await[int](t, log, regexp.MustCompile(pattern), nil)[0]
}

// TestLogLevelsOfAServer: levels are by component, and change while the server runs, for a while or
// for good.
func TestLogLevelsOfAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, log, _ := serveIn(t, dir, "--log-level", "warn,server=info,etcd=error")
	socket := []string{"--server", "unix:" + dir + "/api.sock"}
	change := func(args ...string) clitest.Outcome {
		t.Helper()
		return do(t, "", slices.Concat([]string{"server", "log-level"}, args, socket)...)
	}
	if o := change(); o.Code != exit.OK || !regexp.MustCompile(`(?m)^xds +warn +- +-$`).MatchString(o.Out) || !regexp.MustCompile(`(?m)^etcd +error +- +-$`).MatchString(o.Out) {
		t.Errorf("%+v", o)
	}
	if text := log.String(); strings.Contains(text, "component=cache") || !strings.Contains(text, "component=server") {
		t.Errorf("components are not told apart:\n%s", text)
	}
	if o := change("api=debug", "xds=info", "--for", "1h"); o.Code != exit.OK ||
		!regexp.MustCompile(`^COMPONENT +LEVEL +WAS +UNTIL +THEN\napi +debug +warn +2\S+Z +warn\nxds +info +warn +2\S+Z +warn\n$`).MatchString(o.Out) {
		t.Errorf("%+v", o)
	}
	awaitLog(t, log, `msg="log levels were changed" levels="?api=debug,xds=info"? by=\S+ for=1h0m0s component=server`)
	if o := change("api=error", "--for", "1ms"); o.Code != exit.OK || !regexp.MustCompile(`(?m)^api +error +debug +\S+ +warn$`).MatchString(o.Out) {
		t.Errorf("%+v", o)
	}
	for limit := time.Now().Add(30 * time.Second); ; {
		var levels struct {
			Items []struct{ Component, Level, Then string }
		}
		if err := json.Unmarshal([]byte(change("-o", "json").Out), &levels); err != nil {
			t.Fatal(err)
		}
		if levels.Items[0].Level == "warn" && levels.Items[0].Then == "" {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("the level of before does not return: %+v", levels)
		}
	}
	if o := change("debug"); o.Code != exit.OK || strings.Count(o.Out, " debug ") != len(loglevel.Components())-1 || !regexp.MustCompile(`(?m)^etcd +info`).MatchString(o.Out) {
		t.Errorf("%+v", o)
	}
	o := change("xsd=debug", "api=loud")
	if o.Code != exit.Data || !strings.Contains(o.Err, `there is no component "xsd": did you mean xds: there are api, cache, etcd,`) || !strings.Contains(o.Err, `"api=loud": a level is debug, info, warn or error`) {
		t.Errorf("%+v", o)
	}
	for args, says := range map[string]string{
		"--for 10m": "--for: name what to change", "xds=debug --for 0s": "--for 0s: give a time above 0", "xds=debug --for soon": `--for "soon"`, "-o xml": `-o "xml"`,
	} {
		if o := change(strings.Fields(args)...); o.Code != exit.Usage || !strings.Contains(o.Err, says) {
			t.Errorf("%s: %+v", args, o)
		}
	}
	for args, says := range map[string]string{
		"--log-level loud": `--log-level: "loud": a level is debug, info, warn or error`, "--log-level info,xsd=debug": `there is no component "xsd"`, "--log-format xml": `--log-format: "xml" is neither text nor json`,
	} {
		if o := do(t, "", append([]string{"serve"}, strings.Fields(args)...)...); o.Code != exit.Usage || !strings.Contains(o.Err, says) {
			t.Errorf("%s: %+v", args, o)
		}
	}
}

// TestLogLevelsNeedTheRight: who may not administer the server changes nothing.
func TestLogLevelsNeedTheRight(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, _, _ := serveIn(t, dir)
	local := "unix:" + dir + "/api.sock"
	token := do(t, "", "user", "create", "vi", "--role", "viewer", "--server", local)
	if token.Code != exit.OK {
		t.Fatalf("%+v", token)
	}
	o := do(t, "", "server", "log-level", "debug", "--server", server, "--token", strings.TrimSpace(token.Out))
	if o.Code != exit.Forbidden {
		t.Errorf("a viewer: %+v", o)
	}
	if o := do(t, "", "server", "log-level", "--server", local); o.Code != exit.OK || strings.Contains(o.Out, "debug") {
		t.Errorf("%+v", o)
	}
}
