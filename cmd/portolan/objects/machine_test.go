package objects

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// workloadEntry returns an entry of the namespace shop.
func workloadEntry(name, address string, annotations map[string]string, healthy string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"address": address}}}
	u.SetName(name)
	u.SetNamespace("shop")
	u.SetAnnotations(annotations)
	if healthy != "" {
		u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Healthy", "status": healthy, "message": "503"}}}
	}
	return u
}

func registeredAt(id string, more ...string) map[string]string {
	out := map[string]string{"portolan.io/registered-node": id, "istio.io/autoRegistrationGroup": "web"}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

// TestMachineList: the table has the machines of each state.
func TestMachineList(t *testing.T) {
	t.Parallel()
	id := func(ip, name string) string { return "sidecar~" + ip + "~" + name + ".shop~shop.svc.cluster.local" }
	proxies := admin.ProxyList{
		Server: "cp-1:7/0a1b",
		Items: []progress.ProxyStatus{
			{Node: id("10.0.0.1", "vm-1"), Namespace: "shop", CertificateEnds: clitest.Noon.Add(20 * time.Hour), Machine: &node.Facts{Agent: "1.4.0", Envoy: "1.40.0", EnvoySince: clitest.Noon.Add(-72 * time.Hour)}},
			{Node: id("10.0.0.2", "vm-2"), Namespace: "shop", CertificateEnds: clitest.Noon.Add(-time.Minute)},
			{Node: id("10.0.0.4", "vm-4"), Namespace: "other"},
			{Node: id("10.0.0.8", "vm-8"), Name: "vm-8", Namespace: "shop", Machine: &node.Facts{Agent: "1.4.0", AgentSince: clitest.Noon.Add(-time.Hour), Envoy: "1.40.0", EnvoySince: clitest.Noon.Add(-time.Hour)}},
			{Node: id("10.0.0.8", "vm-8"), Name: "vm-8", Namespace: "shop", Machine: &node.Facts{Agent: "1.4.0", AgentSince: clitest.Noon.Add(-time.Hour), Envoy: "1.40.0", EnvoySince: clitest.Noon.Add(-time.Hour)}}, // its Envoy is replaced
			{Node: id("10.0.0.9", "no-agent"), Name: "no-agent", Namespace: "shop"},
		},
		Elsewhere: map[string]int{"cp-2:7/0a1b": 1},
		Gone:      []progress.Place{{Node: id("10.0.0.3", "vm-3"), Seen: clitest.Noon.Add(-3 * time.Minute)}},
	}
	var list MachineList
	for _, entry := range []*unstructured.Unstructured{
		workloadEntry("web-10.0.0.1", "10.0.0.1", registeredAt(id("10.0.0.1", "vm-1")), "True"),
		workloadEntry("hand-2", "10.0.0.2", map[string]string{"portolan.io/drained": "a disk"}, "False"),
		workloadEntry("web-10.0.0.3", "10.0.0.3", registeredAt(id("10.0.0.3", "vm-3"), "portolan.io/drained", "a disk"), ""),
		workloadEntry("hand-4", "10.0.0.4", nil, ""),
		workloadEntry("web-10.0.0.5", "10.0.0.5", registeredAt(id("10.0.0.5", "vm-5"), "istio.io/workloadController", "cp-2:7/0a1b"), ""),
		workloadEntry("web-10.0.0.7", "10.0.0.7", registeredAt(id("10.0.0.7", "vm-7"), "istio.io/workloadController", "cp-3:7/0a1b"), ""),
		workloadEntry("web-10.0.0.6", "10.0.0.6", registeredAt(id("10.0.0.6", "vm-6"), "portolan.io/removed", "stolen"), ""),
	} {
		list.Items = append(list.Items, machineOf(entry, proxies))
	}
	list.Items = append(list.Items, withoutEntry(list.Items, proxies)...)
	list.Refused = []finding.Finding{{Code: "PTL0231", Object: finding.Object{Kind: "WorkloadGroup", Namespace: "shop", Name: "web"}, Message: "vm-7 is refused"}}
	var out strings.Builder
	env := &environment{&cli.Environment{Stdout: &out, Now: func() time.Time { return clitest.Noon }, Schemas: schema.Pilot()}}
	if err := env.printMachines(list, false); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out.String(), "machine-list.txt")
	out.Reset()
	if err := cli.WriteTable(&out, list.Items[1].rows(clitest.Noon)); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out.String(), "machine-describe.txt")
	out.Reset()
	if err := cli.WriteTable(&out, list.Items[7].rows(clitest.Noon)); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, out.String(), "machine-noentry.txt")
}

// TestOriginsOfLabels: each label has the origin that registration.EntryOf gave it.
func TestOriginsOfLabels(t *testing.T) {
	t.Parallel()
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
		"template": map[string]any{"labels": map[string]any{"app": "template", "tier": "front"}},
	}}}
	group.SetAnnotations(map[string]string{"portolan.io/node-labels": "version, zone"})
	for key, want := range map[[2]string]string{
		{"app", "web"}:                         "metadata of the group",
		{"app", "other"}:                       "an edit of the entry",
		{"tier", "front"}:                      "template of the group",
		{"version", "v2"}:                      "the node",
		{"team", "blue"}:                       "an edit of the entry",
		{"security.istio.io/tlsMode", "istio"}: "the certificate of the proxy",
	} {
		if got := originOf(key[0], key[1], group); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
		if got := originOf(key[0], key[1], nil); got != "the entry" {
			t.Errorf("%s of an entry by hand: %q", key, got)
		}
	}
}

// TestOperationOfAWithdrawal: an entry is changed, or deleted where nobody would renew it.
func TestOperationOfAWithdrawal(t *testing.T) {
	t.Parallel()
	const drained, removed = "portolan.io/drained", "portolan.io/removed"
	for name, c := range map[string]struct {
		o    withdrawal
		m    machine
		want string // the verb
	}{
		"drain a registered one":            {withdrawal{annotation: drained, reason: "r"}, machine{Group: "web", Connected: true}, "update"},
		"drain one by hand":                 {withdrawal{annotation: drained, reason: "r"}, machine{}, "update"},
		"end the drain of a connected one":  {withdrawal{annotation: drained, end: true}, machine{Group: "web", Connected: true}, "update"},
		"end the drain of one that is away": {withdrawal{annotation: drained, end: true}, machine{Group: "web"}, "delete"},
		"end the drain of a removed one":    {withdrawal{annotation: drained, end: true}, machine{Group: "web", Removed: "r"}, "update"},
		"end the drain of one by hand":      {withdrawal{annotation: drained, end: true}, machine{}, "update"},
		"remove a registered one":           {withdrawal{annotation: removed, reason: "r"}, machine{Group: "web"}, "update"},
		"remove one by hand":                {withdrawal{annotation: removed, reason: "r"}, machine{Connected: true}, "delete"},
		"let a connected one back":          {withdrawal{annotation: removed, end: true}, machine{Group: "web", Connected: true}, "update"},
		"let one back that is away":         {withdrawal{annotation: removed, end: true}, machine{Group: "web"}, "delete"},
	} {
		got, err := c.o.operation(c.m, workloadEntry("a", "10.0.0.1", nil, "True"))
		if err != nil || string(got.Verb) != c.want {
			t.Errorf("%s: %s, %v, want %s", name, got.Verb, err, c.want)
		}
		if text := string(got.Object); c.want == "update" && (strings.Contains(text, c.o.annotation) == c.o.end || strings.Contains(text, "Healthy")) {
			t.Errorf("%s: the object is %s", name, text)
		}
	}
}

// TestWhatUndoesAWithdrawal: each command that a machine comes back from names the one that brings it.
func TestWhatUndoesAWithdrawal(t *testing.T) {
	t.Parallel()
	const drained, removed = "portolan.io/drained", "portolan.io/removed"
	for name, c := range map[string]struct {
		o    withdrawal
		m    machine
		want string
	}{
		"a drain":                     {withdrawal{annotation: drained}, machine{}, "portolan machine drain a -n shop --end takes it back."},
		"a drain of a registered one": {withdrawal{annotation: drained}, machine{Group: "web"}, "portolan machine drain a -n shop --end takes it back."},
		"the end of a drain":          {withdrawal{annotation: drained, end: true}, machine{}, ""},
		"the removal of a registered": {withdrawal{annotation: removed}, machine{Group: "web"}, "portolan machine remove a -n shop --end lets it back."},
		"the removal of one by hand":  {withdrawal{annotation: removed}, machine{}, ""},
		"the end of a removal":        {withdrawal{annotation: removed, end: true}, machine{Group: "web"}, ""},
	} {
		if got := c.o.undo(c.m, entryKey("shop", "a")); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
