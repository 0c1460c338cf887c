package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestBootstrapWithTLS: the command writes the bootstrap, and beside it the secrets that Envoy
// watches.
func TestBootstrapWithTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := do(t, "", "bootstrap", "--name", "vm-12", "-n", "shop", "--ip", "10.0.0.12", "--tls", "--cert", "/etc/mesh/cert.pem", "--key", "/etc/mesh/key.pem", "--ca", "/etc/mesh/ca.pem",
		"--xds-address", "a.example:15012", "--xds-address", "10.0.0.1:15012", "--out", dir, "--admin-address", "off")
	if o.Code != exit.OK || o.Out != "" || !strings.Contains(o.Err, "envoy -c "+dir+"/envoy.yaml") {
		t.Fatalf("%+v", o)
	}
	var all strings.Builder
	for _, name := range []string{"envoy.yaml", "xds-certificate.yaml", "xds-roots.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("# " + name + "\n" + strings.ReplaceAll(string(text), dir, "DIR"))
	}
	golden.Assert(t, all.String(), "bootstraptls.txt")
}

// TestBootstrapOfGRPCWithTLS: the bootstrap names the files, which the library watches.
func TestBootstrapOfGRPCWithTLS(t *testing.T) {
	t.Parallel()
	o := do(t, "", "bootstrap", "--type", "grpc", "--name", "vm-12", "-n", "shop", "--ip", "10.0.0.12", "--tls", "--cert", "/etc/mesh/cert.pem", "--key", "/etc/mesh/key.pem", "--ca", "/etc/mesh/ca.pem", "--xds-ca", "/etc/xds/ca.pem")
	if o.Code != exit.OK {
		t.Fatalf("%+v", o)
	}
	golden.Assert(t, o.Out, "bootstrapgrpctls.json")
}

func TestBootstrapWithTLSRefuses(t *testing.T) {
	t.Parallel()
	files := []string{"--cert", "/etc/mesh/cert.pem", "--key", "/etc/mesh/key.pem", "--ca", "/etc/mesh/ca.pem"}
	for want, args := range map[string][]string{
		"--tls: needs the proxy's certificate":          {"--tls", "--out", t.TempDir()},
		"--tls: needs a directory":                      append([]string{"--tls"}, files...),
		"--tls: is needed for --xds-ca and --xds-name":  {"--xds-name", "a.example"},
		"--xds-ca \"ca.pem\": must be an absolute path": append([]string{"--type", "grpc", "--tls", "--xds-ca", "ca.pem"}, files...),
		"a unix socket has no TLS":                      append([]string{"--tls", "--out", t.TempDir(), "--xds-address", "unix:///run/xds.sock"}, files...),
		"--xds-name is about an Envoy":                  append([]string{"--type", "grpc", "--tls", "--xds-name", "a.example"}, files...),
	} {
		o := do(t, "", append([]string{"bootstrap", "--name", "vm-12", "--ip", "10.0.0.12"}, args...)...)
		if o.Code != exit.Usage || !strings.Contains(o.Err, want) {
			t.Errorf("%v: %+v", args, o)
		}
	}
}
