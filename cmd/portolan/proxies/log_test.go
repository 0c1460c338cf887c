package proxies

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/transcript"
)

const vm17 = "sidecar~10.0.0.17~vm-17.shop~shop.svc.cluster.local"

func someLog() admin.ProxyLog {
	at := func(ms int) time.Time { return clitest.Noon.Add(time.Duration(ms) * time.Millisecond) }
	return admin.ProxyLog{Server: "cp-2:7/0a1b2c3d", Node: vm17, Items: []transcript.Entry{
		{Time: at(0), Event: transcript.Connected, Message: "delta, from 10.0.0.17:4711"},
		{Time: at(1), Event: transcript.Requested, Type: "CDS"},
		{Time: at(2), Event: transcript.Sent, Type: "CDS", Resources: 3, Removed: 1, Bytes: 20 << 10, Nonce: "815-1", Version: "v1"},
		{Time: at(3), Event: transcript.Acknowledged, Type: "CDS", Nonce: "815-1", Took: 12345 * time.Microsecond},
		{Time: at(4), Event: transcript.Requested, Type: "EDS", Resources: 1, Removed: 2},
		{Time: at(5), Event: transcript.Refused, Type: "RDS", Nonce: "815-2", Took: 2 * time.Second, Message: "unknown\x1b cluster"},
		{Time: at(6), Event: transcript.Ended, Message: "the client ended it, or is gone"},
	}}
}

// TestProxyLog: each entry is a line, the newest last, without control characters.
func TestProxyLog(t *testing.T) {
	t.Parallel()
	var asked []string
	answer := func(r *http.Request) any {
		asked = append(asked, r.URL.RequestURI())
		return someLog()
	}
	o, err := serving(t, answer, "proxy", "log", "vm-17", "-n", "shop", "--since", "5m")
	if err != nil || asked[0] != admin.ProxyLogPath+"?after=2026-01-31T11%3A55%3A00Z&namespace=shop&node=vm-17" {
		t.Errorf("%v, asked %q", err, asked)
	}
	clitest.Same(t, "the log", o.Out, `2026-01-31T12:00:00.000Z  -      connected     delta, from 10.0.0.17:4711
2026-01-31T12:00:00.001Z  CDS    requested     all
2026-01-31T12:00:00.002Z  CDS    sent          3 resources, 1 removed, 20 KiB, nonce 815-1, version v1
2026-01-31T12:00:00.003Z  CDS    acknowledged  after 12.3ms, nonce 815-1
2026-01-31T12:00:00.004Z  EDS    requested     1 name, 2 given up
2026-01-31T12:00:00.005Z  RDS    refused       after 2s, nonce 815-2, unknown  cluster
2026-01-31T12:00:00.006Z  -      ended         the client ended it, or is gone
`)
	if o, err := serving(t, answer, "proxy", "logs", "vm-17", "--tail", "1"); err != nil || strings.Count(o.Out, "\n") != 1 || !strings.Contains(o.Out, "ended") {
		t.Errorf("%v: %+v", err, o)
	}
	if o, err := serving(t, answer, "proxy", "log", "vm-17", "--tail", "0"); err != nil || o.Out != "" {
		t.Errorf("%v: %+v", err, o)
	}
	o, err = serving(t, answer, "proxy", "log", "vm-17", "-o", "jsonl", "--tail", "2")
	if want := `{"time":"2026-01-31T12:00:00.005Z","event":"refused","type":"RDS","nonce":"815-2","took":2000000000,"message":"unknown\u001b cluster"}`; err != nil || !strings.HasPrefix(o.Out, want+"\n{") {
		t.Errorf("%v: %s", err, o.Out)
	}
}

// TestFollowAsksForWhatIsNew: -f goes on after the last entry that it has shown, until an answer is
// an error.
func TestFollowAsksForWhatIsNew(t *testing.T) {
	t.Parallel()
	var asked []string
	var last *http.Request // serving calls it twice for each
	o, err := serving(t, func(r *http.Request) any {
		if r == last {
			asked = asked[:len(asked)-1]
		}
		last = r
		if asked = append(asked, r.URL.Query().Get("after")); len(asked) > 2 {
			return "no JSON"
		}
		log := someLog()
		log.Items = log.Items[len(asked)-1 : len(asked)]
		return log
	}, "proxy", "log", "vm-17", "-f", "--tail", "5")
	if err == nil || strings.Count(o.Out, "\n") != 2 {
		t.Errorf("%v: %s", err, o.Out)
	}
	clitest.Same(t, "asked for what is after", strings.Join(asked[:3], " "), " 2026-01-31T12:00:00Z 2026-01-31T12:00:00.001Z")
}

// TestProxyTop: the proxies that cost the most come first, by what the user says.
func TestProxyTop(t *testing.T) {
	t.Parallel()
	list := someProxies()
	list.APIs = nil
	list.Items[0].Traffic = transcript.Traffic{Responses: 4, Resources: 40, Bytes: 5000, Acks: 4, MeanTook: 1500 * time.Microsecond, LongestTook: 3 * time.Second}
	list.Items[1].Traffic = transcript.Traffic{Responses: 9, Resources: 41, Bytes: 30 << 20, Acks: 7, Refusals: 2, MeanTook: 900 * time.Microsecond, LongestTook: time.Millisecond}
	top := func(args ...string) string {
		t.Helper()
		o, err := serving(t, func(*http.Request) any { return list }, append([]string{"proxy", "top"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return o.Out
	}
	lines := strings.Split(top(), "\n")
	for i, want := range [][]string{
		{"NODE", "NS", "PUSHES", "RESOURCES", "BYTES", "ACK", "LONGEST", "REFUSALS", "CONNECTED", "SERVER"},
		{"vm-17", "shop", "9", "41", "30 MiB", "900µs", "1ms", "2", "cp-2"},
		{"edge-1", "edge", "4", "40", "5000 B", "1.5ms", "3s", "0", "cp-2"},
	} {
		if !clitest.HasLine(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
	for order, first := range map[string]string{"ack": "edge-1", "name": "edge-1", "refusals": "vm-17", "pushes": "vm-17", "bytes": "vm-17"} {
		if out := top("--sort-by", order, "--limit", "1"); !strings.HasPrefix(strings.Split(out, "\n")[1], first) {
			t.Errorf("by %s: %s", order, out)
		}
	}
	if out := top("edge"); strings.Contains(out, "vm-17") {
		t.Error(out)
	}
	if out := top("-o", "json"); !strings.Contains(out, `"bytes": 31457280`) {
		t.Error(out)
	}
}

// TestRefreshEnds: a screen is drawn until the user has seen enough, or drawing fails.
func TestRefreshEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var screen strings.Builder
	if err := refresh(ctx, &screen, func(context.Context) error { cancel(); return nil }); err != nil || screen.String() != "\x1b[H\x1b[2J" {
		t.Errorf("%v: %q", err, screen.String())
	}
	failed := errors.New("away")
	if err := refresh(t.Context(), &screen, func(context.Context) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
}

// TestProxyDisconnect: one request, and what it did.
func TestProxyDisconnect(t *testing.T) {
	t.Parallel()
	var asked string
	answer := func(r *http.Request) any {
		asked = r.Method + " " + r.URL.RequestURI()
		return admin.Disconnected{Node: vm17, Server: "cp-2:7/0a1b2c3d", Streams: 2}
	}
	o, err := serving(t, answer, "proxy", "disconnect", "vm-17", "-m", "why", "-n", "shop")
	clitest.Same(t, "it says", o.Out, "vm-17.shop: 2 streams ended on server cp-2:7\n")
	if want := "POST " + admin.DisconnectPath + "?message=why&namespace=shop&node=vm-17"; err != nil || asked != want {
		t.Errorf("%v, asked %s", err, asked)
	}
	if o, err := serving(t, answer, "proxy", "disconnect", "vm-17", "-o", "json"); err != nil || !strings.Contains(o.Out, `"streams": 2`) {
		t.Errorf("%v: %+v", err, o)
	}
}

// TestBadLinesOfProxies: what is wrong, missing or there twice is refused before any server is
// asked.
func TestBadLinesOfProxies(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		"proxy log":                    "accepts 1 arg(s), received 0",
		"proxy log a b":                "accepts 1 arg(s), received 2",
		"proxy log a --since -5m":      "--since -5m0s: give how long ago",
		"proxy log a --since soon":     `--since "soon": give a time with its unit`,
		"proxy log a --tail -1":        "--tail -1: give how many entries",
		"proxy log a --tail x":         `--tail "x": give a whole number`,
		"proxy log a -o yaml":          `-o "yaml": use jsonl`,
		"proxy log a -n x -A":          "-A is all namespaces, and -n is one",
		"proxy top a b":                "accepts at most 1 arg(s), received 2",
		"proxy top --sort-by age":      `--sort-by "age": use bytes, pushes, ack, refusals or name`,
		"proxy top --limit -1":         "--limit -1: give how many proxies to show",
		"proxy top -w":                 "-w refreshes a terminal, and the output goes elsewhere",
		"proxy top -o wide":            `-o "wide": use table, json or yaml`,
		"proxy top -A -n x":            "-A is all namespaces, and -n is one",
		"proxy disconnect":             "accepts 1 arg(s), received 0",
		"proxy disconnect a b":         "accepts 1 arg(s), received 2",
		"proxy disconnect a -n x -A":   "-A is all namespaces, and -n is one",
		"proxy disconnect a -o wide":   `-o "wide": use json or yaml`,
		"proxy disconnect a --message": "--message needs a value",
	} {
		o := do(t, "", strings.Fields(line)...)
		if o.Code != exit.Usage || o.Out != "" || !strings.Contains(o.Err, says) {
			t.Errorf("%s: %+v, want %s", line, o, says)
		}
	}
}
