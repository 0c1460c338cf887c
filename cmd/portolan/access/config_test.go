package access

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestContexts: commands use the server and namespace of the context, unless a flag or a
// variable says otherwise.
func TestContexts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "portolan", "config.yaml")
	t.Setenv("PORTOLAN_CONFIG", file)
	server := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, name+" was asked for "+r.URL.Path, http.StatusTeapot)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	prod, staging := server("prod"), server("staging")
	must := func(line ...string) string {
		t.Helper()
		o := do(t, "", line...)
		if o.Code != exit.OK || o.Err != "" {
			t.Fatalf("%s: %+v", strings.Join(line, " "), o)
		}
		return o.Out
	}
	must("config", "set-context", "prod", "--server", prod, "-n", "shop")
	must("config", "set-context", "staging", "--server", staging)
	if got := must("config", "current-context"); got != "prod\n" {
		t.Errorf("the current context is %q, not the first", got)
	}
	asked := func(want string, line ...string) {
		t.Helper()
		if o := do(t, "", line...); !strings.Contains(o.Err, want) {
			t.Errorf("%s: %+v, want %q", strings.Join(line, " "), o, want)
		}
	}
	asked("prod was asked for /apis/networking.istio.io/v1/namespaces/shop/virtualservices", "get", "vs")
	asked("prod was asked for /apis/networking.istio.io/v1/namespaces/other/virtualservices", "get", "vs", "-n", "other")
	asked("staging was asked for /apis/networking.istio.io/v1/namespaces/default/virtualservices", "get", "vs", "--context", "staging")
	asked("staging was asked for /apis/networking.istio.io/v1/namespaces/shop/virtualservices", "get", "vs", "--server", staging)
	t.Setenv("PORTOLAN_CONTEXT", "staging")
	asked("staging was asked", "get", "vs")
	t.Setenv("PORTOLAN_SERVER", prod)
	asked("prod was asked for /apis/networking.istio.io/v1/namespaces/default/virtualservices", "get", "vs")
	t.Setenv("PORTOLAN_SERVER", "")
	asked(`there is no context "nowhere"`, "get", "vs", "--context", "nowhere")
	t.Setenv("PORTOLAN_CONTEXT", "")

	must("config", "use-context", "staging")
	if got := must("config", "get-contexts"); !strings.Contains(got, "*        staging  "+staging+"  -          -") || !strings.Contains(got, "         prod     "+prod+"  shop       -") {
		t.Errorf("contexts:\n%s", got)
	}
	must("config", "delete-context", "staging")
	if o := do(t, "", "config", "current-context"); o.Code != exit.Failure || !strings.Contains(o.Err, "there is no current context") {
		t.Errorf("after its end: %+v", o)
	}
	if o := do(t, "", "config", "use-context", "staging"); o.Code != exit.Data || !strings.Contains(o.Err, "the names are prod") {
		t.Errorf("a context that is gone: %+v", o)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if o := do(t, "", "get", "vs"); o.Code != exit.Data || !strings.Contains(o.Err, "chmod 600 "+file) {
		t.Errorf("a file that others can read: %+v", o)
	}
	must("version")
}
