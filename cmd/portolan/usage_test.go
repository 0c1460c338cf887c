package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestSlips: a nearly correct command line is a usage error, with a suggestion.
func TestSlips(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		"aply -f x":                     `unknown command "aply" for "portolan": did you mean portolan apply?`,
		"nonsense":                      `unknown command "nonsense" for "portolan"` + "\nSee 'portolan --help'",
		"proxy statu":                   `unknown command "statu" for "portolan proxy": did you mean portolan proxy status?`,
		"proxy-status -o wide":          `unknown command "proxy-status" for "portolan": did you mean portolan proxy status?`,
		"proxy status -o xml":           `-o "xml": use table, wide, json or yaml`,
		"proxy frob":                    `unknown command "frob" for "portolan proxy"` + "\nSee 'portolan proxy --help'",
		"store member lst --frob":       `unknown command "lst" for "portolan store member": did you mean portolan store member list?`,
		"edti vs/reviews -n shop":       `unknown command "edti" for "portolan": did you mean portolan edit?`,
		"lable vs/reviews a=b":          `unknown command "lable" for "portolan": did you mean portolan label?`,
		"patch vs/x --typ json -p x":    `unknown flag: --typ: did you mean --type?`,
		"get virtualservic":             `unknown kind "virtualservic": see portolan api-resources for those served, or did you mean virtualservices?`,
		"wait gatway/x":                 `served, or did you mean gateways?`,
		"get svc":                       `portolan describe service HOST shows what a host is`,
		"help exit-code":                `did you mean portolan exit-codes?`,
		"help nonsense":                 `unknown command "nonsense" for "portolan"`,
		"help proxy statsu":             `unknown command "statsu" for "portolan proxy": did you mean portolan proxy status?`,
		"completion fishh":              `unknown command "fishh" for "portolan completion": did you mean portolan completion fish?`,
		"get vs --al":                   `unknown flag: --al: did you mean --all-namespaces?`,
		"get vs --sever x":              `unknown flag: --sever: did you mean --server?`,
		"wait vs/x --timeout 10":        `--timeout "10": give a time with its unit, such as 30s or 5m`,
		"apply -f x --dry-run":          `--dry-run needs a value: change nothing: client reads and validates`,
		"wait --revision x":             `--revision "x": give a whole number`,
		"apply -f x --wait=no":          `--wait "no": give true or false`,
		"serve --store-quota lots":      `--store-quota "lots": `,
		"apply -f x --timeout 5s":       `--timeout is for --wait: give both or neither`,
		"apply -f x --threshold 9":      `--threshold is for --wait: give both or neither`,
		"wait vs":                       `name one object to wait for: KIND/NAME or KIND NAME`,
		"wait":                          `name what to wait for: --revision N, or KIND/NAME`,
		"proxy status --only forgotten": `--only "forgotten": use rejected or stale`,
	} {
		o := do(t, "", strings.Fields(line)...)
		if o.Code != exit.Usage || o.Out != "" || !strings.Contains(o.Err, says) {
			t.Errorf("%s: %+v", line, o)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		"help": "portolan [command]", "help exit-codes": "  75  conflict", "help proxy status": "portolan proxy status [NODE] [flags]",
		"help wait": "--threshold string", "help proxy": "Show the connected proxies",
	} {
		if o := do(t, "", strings.Fields(line)...); o.Code != exit.OK || o.Err != "" || !strings.Contains(o.Out, says) {
			t.Errorf("%s: %+v", line, o)
		}
	}
	if o := do(t, "", "help", "wait"); o != do(t, "", "wait", "--help") {
		t.Errorf("help wait and wait --help differ: %s", o.Out)
	}
}

// TestKindWithGroup: a kind may be named with its group, as with kubectl.
func TestKindWithGroup(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	if out := a.Must(t, "", "get", "serviceentries.networking.istio.io", "-o", "name"); out != "serviceentry/default/x\n" {
		t.Errorf("%s", out)
	}
}

// TestWrongServer: the error distinguishes an address at which something else listens from one
// at which nothing does.
func TestWrongServer(t *testing.T) {
	t.Parallel()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("reviews v1")) }))
	defer page.Close()
	proxies := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = conn.Write([]byte("\x00\x00\x0c\x04\x00\x00\x00\x00\x00")) // the SETTINGS frame that a gRPC server sends first
		_ = conn.Close()
	}))
	defer proxies.Close()
	for server, says := range map[string]string{
		page.URL:    "the answer is 200 OK, and not from a Portolan server: reviews v1",
		proxies.URL: "is this where proxies connect (serve --xds-address), and not its --api-address?",
		strings.Replace(page.URL, "http:", "https:", 1): "it serves http, not https",
	} {
		o := do(t, "", "proxy", "status", "--server", server)
		if o.Code != exit.Unreachable || !strings.Contains(o.Err, says) || !strings.Contains(o.Err, "--server") {
			t.Errorf("%s: %+v", server, o)
		}
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	var out, err bytes.Buffer
	code := cli.Run(ctx, whole(), []string{"wait", "--revision", "7", "--server", server.URL}, strings.NewReader(""), &out, &err)
	if got := (clitest.Outcome{Code: code, Out: out.String(), Err: err.String()}); got != (clitest.Outcome{Code: exit.Failure, Err: "portolan: interrupted\n"}) {
		t.Errorf("%+v", got)
	}
}

func TestWaitForNothing(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"gone"}`))
	}))
	defer server.Close()
	want := "portolan: virtualservice/default/review: not found: see those there are with portolan get virtualservices -A\n"
	if o := do(t, "", "wait", "vs/review", "--server", server.URL); o != (clitest.Outcome{Code: exit.Failure, Err: want}) {
		t.Errorf("%+v", o)
	}
}

// TestVersion: the command and the flag, which other tools have, print the same.
func TestVersion(t *testing.T) {
	t.Parallel()
	want := do(t, "", "version")
	if want.Code != exit.OK || !strings.HasPrefix(want.Out, "portolan "+version+" (go") {
		t.Fatalf("portolan version: %+v", want)
	}
	if got := do(t, "", "--version"); got != want {
		t.Errorf("portolan --version: %+v, want %+v", got, want)
	}
}
