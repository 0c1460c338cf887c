package objects

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

const described = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop, labels: {app: shop}}
data: {a: b}
`

// TestDescribeBeside: describe shows labels, content and events of an object beside the mesh.
func TestDescribeBeside(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, described+"---\n"+namespaceShop, "apply", "-f", "-")
	post(t, a, "/api/v1/namespaces/shop/events", `{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"type":"Normal","reason":"Read","message":"it was read",
		"involvedObject":{"kind":"ConfigMap","namespace":"shop","name":"settings"},"lastTimestamp":"2026-01-02T03:04:06Z"}`)
	told(t, a, "other", "settings", `"reason":"Odd"`)
	out := a.Must(t, "", "describe", "cm/settings", "-n", "shop")
	for _, want := range []string{"configmap/shop/settings  created ", "\n\ndata:\n  a: b\nlabels:\n  app: shop\n", "\nLAST SEEN ", "it was read"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "Odd") {
		t.Errorf("an event of another kind:\n%s", out)
	}
	if out := a.Must(t, "", "describe", "cm/settings", "-n", "shop", "-o", "json"); !strings.Contains(out, `"reason": "Read"`) || !strings.Contains(out, `"a": "b"`) {
		t.Error(out)
	}
	if out := a.Must(t, "", "describe", "ns/shop"); !strings.Contains(out, "namespace/shop  created ") || strings.Contains(out, "LAST SEEN") {
		t.Error(out)
	}
	if o := a.Do(t, "", "describe", "cm/none", "-n", "shop"); o.Code != exit.Failure || !strings.Contains(o.Err, "configmap/shop/none: not found") {
		t.Errorf("%+v", o)
	}
	if out := a.Must(t, "", "events", "--for", "cm/settings", "-n", "shop", "-o", "name"); out != "event/shop/e\n" {
		t.Error(out)
	}
}

// TestBesideHasNoHistory: commands of the history say that there is none of kinds beside the mesh,
// and wait --for waits for them.
func TestBesideHasNoHistory(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, described, "apply", "-f", "-")
	for _, line := range []string{"history cm/settings", "audit cm", "rollback cm/settings", "rollback cm/settings --to-revision 1", "diff cm/settings --from 1", "export cm"} {
		o := a.Do(t, "", strings.Fields(line)...)
		if o.Code != exit.Usage || o.Err != "portolan: ConfigMaps have no history, and no export has them: portolan get configmaps shows those there are\n" {
			t.Errorf("%s: %+v", line, o)
		}
	}
	clitest.Same(t, "wait --for", a.Must(t, "", "wait", "cm/settings", "-n", "shop", "--for=jsonpath={.data.a}=b"), "configmap/shop/settings  jsonpath={.data.a}=b\n")
	if o := a.Do(t, "", "wait", "cm/settings"); o.Code != exit.Usage || !strings.Contains(o.Err, "configmap/default/settings concerns no proxy: say by --for what to wait for") {
		t.Errorf("%+v", o)
	}
}
