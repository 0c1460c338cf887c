package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/logtest"
)

var readyLine = regexp.MustCompile(`msg=ready api=(\S+)`)

// serveIn runs a server on a data directory, with more flags; stop ends it and
// returns its exit code.
func serveIn(t *testing.T, dir string, more ...string) (server string, log *logtest.Log, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	log = &logtest.Log{}
	ended := make(chan int, 1)
	go func() { ended <- cli.Run(ctx, whole(), serveArgs(dir, more...), strings.NewReader(""), log, log) }()
	var once sync.Once
	code := -1
	stop = func() int {
		once.Do(func() {
			cancel()
			code = <-ended
		})
		return code
	}
	t.Cleanup(func() { stop() })
	return logtest.Await(t, log, readyLine, ended)[1], log, stop
}

func serveArgs(dir string, more ...string) []string {
	return append([]string{"serve", "--data-dir", dir, "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0"}, more...)
}

// TestServeKeepsWhatIsApplied does what a user does: serve, apply, look, follow the examples of
// commands that show something, stop, and serve again.
func TestServeKeepsWhatIsApplied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, log, stop := serveIn(t, dir)
	if o := do(t, clitest.Entry("x", ""), "apply", "-f", "-", "--server", server); o.Code != exit.OK || !strings.HasPrefix(o.Out, "serviceentry/default/x  created  rev ") {
		t.Fatalf("%+v", o)
	}
	if o := do(t, "", "proxy", "status", "--server", server); o.Code != exit.OK || !strings.Contains(o.Err, "No proxy is connected") {
		t.Errorf("%+v", o)
	}
	for _, command := range []string{
		"api-resources", "auth roles", "secret list", "secret status", "source describe", "source list", "store quarantine list", "store status", "token list", "user list",
	} {
		line, _, _ := strings.Cut(strings.TrimSpace(examples["portolan "+command]), "\n")
		call, _, _ := strings.Cut(line, " || ")
		if o := do(t, "", append(strings.Fields(call)[1:], "--server", server)...); o.Code != exit.OK {
			t.Errorf("the example %s: %+v", call, o)
		}
	}

	taken := do(t, "", serveArgs(dir)...)
	if taken.Code != exit.Failure || !strings.Contains(taken.Err, dir) || !strings.Contains(taken.Err, fmt.Sprintf("held by process %d", os.Getpid())) {
		t.Errorf("a data directory in use: %+v", taken)
	}
	if code := stop(); code != exit.OK {
		t.Fatalf("serve ended with %d:\n%s", code, log)
	}

	server, _, stop = serveIn(t, dir)
	if o := do(t, "", "get", "se", "-o", "name", "--server", server); o.Out != "serviceentry/default/x\n" {
		t.Errorf("after a restart: %+v", o)
	}
	if code := stop(); code != exit.OK {
		t.Errorf("serve ended with %d", code)
	}
}

func TestServePortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, flag := range []string{"--api-address", "--xds-address"} {
		dir := t.TempDir()
		o := do(t, "", serveArgs(dir, flag, l.Addr().String())...)
		if o.Code != exit.Failure || !strings.Contains(o.Err, "portolan: "+flag+": ") || !strings.Contains(o.Err, "address already in use") {
			t.Errorf("%s: %+v", flag, o)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: the data directory has %v, %v", flag, left, err)
		}
	}
}

func TestServeBadFlags(t *testing.T) {
	t.Parallel()
	meshConfig := clitest.Write(t, map[string]string{"bad.yaml": "accessLogFil: x"}) + "/bad.yaml"
	tests := []struct {
		args []string
		code int
		says []string
	}{
		{[]string{"--api-address", "0.0.0.0:15080", "--xds-address", "0.0.0.0:15010"}, exit.Usage, []string{"--xds-address", "0.0.0.0:15010", "--secure-xds-address", "127.0.0.1"}},
		{[]string{"--auto-address-ipv4", "10.0.0.0/31", "--auto-address-ipv6", "fd00::"}, exit.Usage, []string{"2 faults:", "--auto-address-ipv4", "/30", "--auto-address-ipv6"}},
		{[]string{"--xds-address", "192.0.2.1:1", "--log-level", "loud"}, exit.Usage, []string{"2 faults:", "--xds-address", "--log-level"}},
		{[]string{"--api-address", "here"}, exit.Usage, []string{"HOST:PORT"}},
		{[]string{"--store-retention", "1s", "--store-quota", "1Mi"}, exit.Usage, []string{"2 faults:", "--store-retention", "1m0s", "--store-quota", "64Mi"}},
		{[]string{"--store-quota", "lots"}, exit.Usage, []string{"--store-quota"}},
		{[]string{"--etcd-endpoints", "127.0.0.1:1", "--store-in-process", "--store-quota", "4Gi"}, exit.Usage, []string{"--store-in-process", "--store-quota"}},
		{[]string{"--etcd-endpoints", "https://127.0.0.1:1"}, exit.Usage, []string{"--data-dir", "is of the embedded store"}},
		{[]string{"--route-delta", "on"}, exit.Usage, []string{"--route-delta", "neither auto nor off"}},
		{[]string{"--mesh-config", "absent.yaml"}, exit.Data, []string{"--mesh-config", "absent.yaml"}},
		{[]string{"--mesh-config", meshConfig}, exit.Data, []string{meshConfig, "accessLogFil"}},
		{[]string{"more"}, exit.Usage, []string{"portolan serve --help"}},
	}
	for _, test := range tests {
		o := do(t, "", serveArgs(t.TempDir(), test.args...)...)
		if o.Code != test.code {
			t.Errorf("%v: %+v", test.args, o)
		}
		for _, word := range test.says {
			if !strings.Contains(o.Err, word) {
				t.Errorf("%v: %q does not say %s", test.args, o.Err, word)
			}
		}
	}
}

func TestSourceFlags(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		"serve --config-dir-first":              "--config-dir-first: is of no use without --config-dir",
		"serve --config-dir a --config-dir ./a": "--config-dir: ./a is given twice",
		"serve --config-dir a --config-dir=":    "--config-dir: is empty: give a directory",

		"serve --config-source hub:15010":                                                    `--config-source: "hub:15010" is not of the form xds://HOST:PORT`,
		"serve --config-source http://hub:15010":                                             "is not of the form xds://HOST:PORT",
		"serve --config-source xds://hub:15010/x":                                            "is not of the form xds://HOST:PORT",
		"serve --config-source xds://hub":                                                    `"hub" is no HOST:PORT`,
		"serve --config-source xds://hub:15010?tls=false":                                    "a peer on another machine is followed by TLS alone",
		"serve --config-source xds://hub:15010?ca=":                                          "the parameter ca takes one value",
		"serve --config-source xds://hub:15010?ca=none.pem":                                  "none.pem: no such file",
		"serve --config-source xds://hub:15010?certificate=x":                                `there is no parameter "certificate": use ca, cert, key`,
		"serve --config-source xds://hub:15010?cert=a.pem":                                   "the parameter cert goes with key",
		"serve --config-source xds://127.0.0.1:1?token=none.txt":                             "none.txt: no such file",
		"serve --config-source xds://127.0.0.1:1?variant=rest":                               `the variant "rest" is none: use delta or sotw`,
		"serve --config-source xds://127.0.0.1:1 --config-source xds://127.0.0.1:1?tls=true": "--config-source: xds://127.0.0.1:1 is given twice",

		"serve --config-kube none":                   "--config-kube: kubeconfig: open none: no such file",
		"serve --config-kube =none":                  "has an empty name: write NAME=KUBECONFIG#CONTEXT",
		"serve --config-kube east=#production":       "names no kubeconfig: write KUBECONFIG#CONTEXT",
		"serve --write-status":                       "--write-status: is of no use without --config-kube",
		"serve --config-kube e@st=none":              `"e@st=none": "e@st" is no name of a cluster: that has letters, digits, "-", "_" and ".", 253 characters at most`,
		"serve --services-kube e@st=":                `"e@st" is no name of a cluster`,
		"serve --secrets-kube none":                  `"none" names no namespaces: write [NAME=]KUBECONFIG[#CONTEXT]=NAMESPACE,NAMESPACE`,
		"serve --secrets-kube east=":                 `"east=" names no namespaces: write [NAME=]KUBECONFIG[#CONTEXT]=NAMESPACE,NAMESPACE`,
		"serve --secrets-kube east=a.kubeconfig":     `"east=a.kubeconfig" names no namespaces, and "a.kubeconfig" is none: write [NAME=]KUBECONFIG[#CONTEXT]=NAMESPACE,NAMESPACE`,
		"serve --secrets-kube =shop":                 `"=shop" names no kubeconfig: write [NAME=]KUBECONFIG[#CONTEXT]=NAMESPACE,NAMESPACE`,
		"serve --secrets-kube none=shop,,edge":       `"none=shop,,edge" has an empty namespace: write`,
		"serve --secrets-kube none=shop,edge,shop":   `"none=shop,edge,shop" names the namespace shop twice`,
		"serve --secrets-kube none=edge,Shop_X":      `"none=edge,Shop_X": "Shop_X" is no namespace, which has lower-case letters, digits and "-" inside, and 63 characters at most: write [NAME=]`,
		"serve --secrets-kube none=shop,edge":        "--secrets-kube: kubeconfig: open none: no such file",
		"serve --write-status --object-status=false": "--write-status: needs --object-status",
	} {
		if o := do(t, "", strings.Fields(line)...); o.Code != exit.Usage || !strings.Contains(o.Err, says) {
			t.Errorf("%s: %+v", line, o)
		}
	}
}

func TestBackupFlagsOfServe(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--backup-keep 3", "--backup-dir x", "--backup-without-keys", "--backup-dir x --backup-without-keys --backup-interval 1s", "--backup-dir x --backup-without-keys --backup-keep 0"} {
		if o := do(t, "", append([]string{"serve"}, strings.Fields(args)...)...); o.Code != exit.Usage || !strings.Contains(o.Err, "--backup-") {
			t.Errorf("serve %s: %+v", args, o)
		}
	}
}

// TestServeRefusesAnEmptyContext: each flag with a kubeconfig refuses a # without a context, all at once.
func TestServeRefusesAnEmptyContext(t *testing.T) {
	t.Parallel()
	o := do(t, "", "serve", "--config-kube", "a#", "--services-kube", "east=b#", "--secrets-kube", "c#=shop")
	for _, want := range []string{`--config-kube: "a#"`, `--services-kube: "east=b#"`, `--secrets-kube: "c#"`} {
		want += " has an empty context: write one behind the #, or leave the # out for the current context of the kubeconfig"
		if o.Code != exit.Usage || !strings.Contains(o.Err, want) {
			t.Errorf("%q is not in\n%s", want, o.Err)
		}
	}
}

// TestServeMissesNamespaces: a value of --secrets-kube without namespaces has this one fault, also where NAME then
// stands in the place of the kubeconfig.
func TestServeMissesNamespaces(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"east=east.kubeconfig", "east=/etc/k", "east=k#production", "east=", "none"} {
		o := do(t, "", "serve", "--secrets-kube", value)
		if o.Code != exit.Usage || strings.Count(o.Err, "--secrets-kube:") != 1 || !strings.Contains(o.Err, "names no namespaces") || strings.Contains(o.Err, "kubeconfig:") {
			t.Errorf("%s: %+v", value, o)
		}
	}
}

// TestServeTellsAllFaultsOfSecretsKube: those of namespaces, of kubeconfigs and of names, at once.
func TestServeTellsAllFaultsOfSecretsKube(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "k")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: east\ncontexts: [{name: east, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: \"https://127.0.0.1:1\"}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := do(t, "", "serve", "--secrets-kube", file+"=shop,Shop_X,,shop", "--secrets-kube", "east="+file+"=edge", "--secrets-kube", "east=", "--secrets-kube", "none=A")
	for _, want := range []string{
		`"Shop_X" is no namespace`, "has an empty namespace", "names the namespace shop twice", `"east=" names no namespaces`, `"A" is no namespace`, "open none: no such file",
		"two clusters have the name east: name all namespaces of a cluster in one value",
	} {
		if o.Code != exit.Usage || !strings.Contains(o.Err, want) {
			t.Errorf("%q is not in\n%s", want, o.Err)
		}
	}
}
