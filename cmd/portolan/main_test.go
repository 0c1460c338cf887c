package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
)

// TestMain also runs the store process that serve starts: this binary with the arguments
// "store run".
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "store" {
		main()
	}
	_ = os.Unsetenv("PORTOLAN_SERVER")
	_ = os.Unsetenv("PORTOLAN_NAMESPACE")
	_ = os.Unsetenv("PORTOLAN_CONTEXT")
	_ = os.Unsetenv("PORTOLAN_TOKEN")
	_ = os.Unsetenv("PORTOLAN_TOKEN_FILE")
	_ = os.Setenv("PORTOLAN_CONFIG", os.DevNull+".none") // hides the contexts of whoever runs the tests
	goleak.VerifyTestMain(m)
}

// outcome is the result of a command line.
type outcome struct {
	code     int
	out, err string
}

// do runs a command line.
func do(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	var out, err bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(stdin), &out, &err)
	return outcome{code, out.String(), err.String()}
}

// api is a running config API, and a command line that uses it.
type api struct{ *resttest.Server }

func startAPI(t *testing.T) api { return api{resttest.Start(t, 0, nil)} }

func (a api) do(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	return do(t, stdin, append(args, "--server", a.URL)...)
}

// must runs a command that must succeed, and returns its output.
func (a api) must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	o := a.do(t, stdin, args...)
	if o.code != exit.OK {
		t.Fatalf("%v: exit code %d: %s", args, o.code, o.err)
	}
	return o.out
}

// write makes files in a new directory, from names and contents.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// same compares texts.
func same(t *testing.T, what, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// entry returns a ServiceEntry with meta added to its metadata.
func entry(name, meta string) string {
	return `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ` + name + meta + `}
spec:
  hosts: [` + name + `.shop]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.0.1}]
`
}
