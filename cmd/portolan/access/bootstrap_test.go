package access

import (
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

func TestBootstrap(t *testing.T) {
	t.Parallel()
	o := do(t, "", "bootstrap", "--name", "vm-12", "-n", "shop", "--ip", "10.0.0.12,fd00::12", "--labels", "app=reviews,version=v1",
		"--interception", "none", "--service-account", "reviews", "--locality", "eu/a", "--cluster-id", "east", "--xds-address", "cp.example:15010", "--admin-address", "off")
	if o.Code != exit.OK || o.Err != "" {
		t.Fatalf("%+v", o)
	}
	golden.Assert(t, o.Out, "bootstrap.yaml")
}

func TestBootstrapOfGateway(t *testing.T) {
	t.Parallel()
	o := do(t, "", "bootstrap", "--type", "gateway", "--name", "edge-1", "--ip", "10.0.0.2", "--interception", "NONE", "--state-of-the-world")
	for _, want := range []string{"id: router~10.0.0.2~edge-1.default~default.svc.cluster.local", "api_type: GRPC\n"} {
		if o.Code != exit.OK || !strings.Contains(o.Out, want) {
			t.Errorf("no %q in %+v", want, o)
		}
	}
	if other := do(t, "", "bootstrap", "--type", "router", "--name", "edge-1", "--ip", "10.0.0.2", "--delta=false"); other != o {
		t.Errorf("in other words: %+v", other)
	}
}

func TestBootstrapOfCapture(t *testing.T) {
	t.Parallel()
	o := do(t, "", "bootstrap", "--name", "vm-12", "--ip", "10.0.0.12", "--interception", "redirect")
	if o.Code != exit.OK || !strings.Contains(o.Out, "INTERCEPTION_MODE: REDIRECT\n") {
		t.Errorf("%+v", o)
	}
}

func TestBootstrapOfGRPC(t *testing.T) {
	t.Parallel()
	o := do(t, "", "bootstrap", "--type", "grpc", "--name", "vm-12", "-n", "shop", "--ip", "10.0.0.12", "--labels", "app=reviews",
		"--locality", "eu/a", "--xds-address", "cp.example:15010")
	if o.Code != exit.OK || o.Err != "" {
		t.Fatalf("%+v", o)
	}
	golden.Assert(t, o.Out, "bootstrap-grpc.json")

	o = do(t, "", "bootstrap", "--type", "grpc", "--name", "vm-12", "--ip", "10.0.0.12", "--xds-address", "cp-1:15010,cp-2:15010")
	if o.Code != exit.OK || !strings.HasPrefix(o.Err, "Warning: a program in Go") || !strings.Contains(o.Out, `"server_uri": "cp-2:15010"`) {
		t.Errorf("of two servers: %+v", o)
	}

	o = do(t, "", "bootstrap", "--type", "grpc", "--ip", "here", "--name", "vm-12", "--interception", "NONE", "--state-of-the-world", "--xds-address", "x")
	if o.Code != exit.Usage || o.Out != "" {
		t.Errorf("%+v", o)
	}
	for _, want := range []string{
		"4 faults:", "--interception is about an Envoy: leave it out with --type grpc", "--state-of-the-world is about", `--ip "here"`, `--xds-address "x"`,
	} {
		if !strings.Contains(o.Err, want) {
			t.Errorf("no %q in %s", want, o.Err)
		}
	}
}

func TestBootstrapNamesAllFaults(t *testing.T) {
	t.Parallel()
	o := do(t, "", "bootstrap", "--type", "proxy", "--ip", "here", "--interception", "magic", "--delta", "--state-of-the-world", "--xds-address", "x")
	if o.Code != exit.Usage || o.Out != "" {
		t.Errorf("%+v", o)
	}
	for _, want := range []string{
		"6 faults:", `--type "proxy": use sidecar, gateway or grpc`, `--interception "MAGIC": use NONE, REDIRECT or TPROXY`,
		"--delta and --state-of-the-world exclude each other", `ip "here": not an IP address`, `name "": must not be empty`, `--xds-address "x": want host:port`,
	} {
		if !strings.Contains(o.Err, want) {
			t.Errorf("no %q in %s", want, o.Err)
		}
	}
}

// TestBootstrapWithACertificate: the proxy uses its own files for all connections, and the
// command does not read them.
func TestBootstrapWithACertificate(t *testing.T) {
	t.Parallel()
	given := func(args ...string) clitest.Outcome {
		return do(t, "", append([]string{"bootstrap", "--name", "vm-12", "--ip", "10.0.0.12"}, args...)...)
	}
	o := given("--cert", "/none/cert.pem", "--key", "/none/key.pem", "--ca", "/none/ca.pem")
	for _, want := range []string{
		"TLS_CLIENT_CERT_CHAIN: /none/cert.pem\n", "TLS_CLIENT_KEY: /none/key.pem\n", "TLS_CLIENT_ROOT_CERT: /none/ca.pem\n",
		"TLS_SERVER_CERT_CHAIN: /none/cert.pem\n", "TLS_SERVER_KEY: /none/key.pem\n", "TLS_SERVER_ROOT_CERT: /none/ca.pem\n",
	} {
		if o.Code != exit.OK || !strings.Contains(o.Out, want) {
			t.Errorf("no %q in %+v", want, o)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--cert", "/none/cert.pem", "--key", "/none/key.pem"}, "--ca: is missing: name cert, key and ca, or none of them"},
		{[]string{"--cert", "cert.pem", "--key", "/none/key.pem", "--ca", "/none/ca.pem"}, `--cert "cert.pem": must be an absolute path`},
		{[]string{"--type", "grpc", "--cert", "/none/cert.pem"}, "--key: is missing: name cert, key and ca, or none of them"},
	} {
		if o := given(c.args...); o.Code != exit.Usage || o.Out != "" || !strings.Contains(o.Err, c.want) {
			t.Errorf("%q: %+v, want %q", c.args, o, c.want)
		}
	}
}

func TestNamespaceOfABootstrap(t *testing.T) {
	t.Setenv("PORTOLAN_NAMESPACE", "shop")
	if o := do(t, "", "bootstrap", "--name", "x", "--ip", "10.0.0.1"); !strings.Contains(o.Out, "x.shop") {
		t.Errorf("%+v", o)
	}
}
