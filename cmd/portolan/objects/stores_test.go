package objects

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

const (
	namespaceShop = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: books}}\n"
	settings      = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: shop}\ndata: {a: b}\n"
)

// both is a file with objects of both stores.
var both = clitest.Entry("x", ", namespace: shop") + "---\n" + namespaceShop + "---\n" + settings

func stored(t *testing.T, a clitest.API) string {
	t.Helper()
	return strings.ReplaceAll(a.Must(t, "", "get", "se,ns,cm", "-A", "-o", "name"), "\n", " ")
}

// TestApplyOfBothStores: what is beside the mesh goes first, and the mesh is one change. A fault in
// either changes nothing.
func TestApplyOfBothStores(t *testing.T) {
	t.Parallel()
	const all = "serviceentry/shop/x namespace/shop configmap/shop/settings "
	bad := strings.Replace(both, "10.0.0.1", "nowhere at all", 1)
	for name, test := range map[string]struct {
		file, line string
		code       int
		says       []string // in the output
		errors     []string
		stored     string
	}{
		"apply":            {both, "apply -f -", exit.OK, []string{"namespace/shop           created  rev 2\nconfigmap/shop/settings  created  rev 2\nserviceentry/shop/x      created  rev 2\n"}, nil, all},
		"create":           {both, "create -f -", exit.OK, []string{"namespace/shop           created"}, nil, all},
		"in parts":         {both, "apply -f - --chunks 1", exit.OK, []string{"part 1 of 3: objects 1-1: rev 2\nnamespace/shop  created", "part 3 of 3: objects 3-3: rev 2\nserviceentry/shop/x  created"}, nil, all},
		"a trial":          {both, "apply -f - --dry-run=server", exit.OK, []string{"namespace/shop           created (dry run)", "+kind: ConfigMap", "serviceentry/shop/x      created (dry run)"}, nil, ""},
		"on the client":    {both, "apply -f - --dry-run=client", exit.OK, []string{"namespace/shop           valid"}, nil, ""},
		"a fault here":     {bad, "apply -f -", exit.Data, nil, []string{"nothing was applied: 2 faults:\n  stdin: document 1 (line 1): serviceentry/shop/x: spec.endpoints[0].address"}, ""},
		"no room there":    {both, "apply -f - --strict", exit.OK, nil, nil, all},
		"replace":          {both, "replace -f -", exit.Failure, nil, []string{"nothing was replaced: 3 faults:", "namespace/shop: not found", "configmap/shop/settings: not found", "serviceentry/shop/x: not found"}, ""},
		"none of the mesh": {namespaceShop, "apply -f - --wait", exit.OK, []string{"namespace/shop  created  rev 2"}, nil, "namespace/shop "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startAPI(t)
			o := a.Do(t, test.file, strings.Fields(test.line)...)
			if o.Code != test.code {
				t.Errorf("%+v", o)
			}
			for _, says := range test.says {
				if !strings.Contains(o.Out, says) {
					t.Errorf("no %q in %s", says, o.Out)
				}
			}
			for _, says := range test.errors {
				if !strings.Contains(o.Err, says) {
					t.Errorf("no %q in %s", says, o.Err)
				}
			}
			clitest.Same(t, "stored", stored(t, a), test.stored)
		})
	}
}

// TestAFaultInOneStore: what only the server finds in one store leaves the other as it is.
func TestAFaultInOneStore(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, settings, "apply", "-f", "-")
	for _, test := range []struct {
		name, file, line string
		code             int
		says             string
	}{
		{"of the mesh", strings.Replace(both, "namespace: shop}", `namespace: shop, resourceVersion: "1"}`, 1), "apply -f -", exit.Conflict, "serviceentry/shop/x"},
		{"beside it", both, "create -f -", exit.Failure, "nothing was created: stdin: document 3 (line 15): create configmap/shop/settings: already exists"},
		{"of both", strings.ReplaceAll(both, "namespace: shop}", `namespace: shop, resourceVersion: "1"}`), "apply -f -", exit.Conflict, "nothing was applied: 2 faults:"},
		{"a namespace to delete", both, "delete -f -", exit.Data, "nothing was deleted: stdin: document 2 (line 11): namespace/shop: goes with all that is in it: leave it out here, and delete it by portolan delete namespace shop"},
		{"one to delete", clitest.Entry("x", ", namespace: shop") + "---\n" + settings, "delete -f -", exit.Failure, "serviceentry/shop/x: not found"},
		{"named", "", "label cm/shop/settings se/shop/x a=b", exit.Failure, "serviceentry/shop/x: not found"},
	} {
		o := a.Do(t, test.file, strings.Fields(test.line)...)
		if o.Code != test.code || o.Out != "" || !strings.Contains(o.Err, test.says) {
			t.Errorf("%s: %+v", test.name, o)
		}
		clitest.Same(t, test.name, stored(t, a), "configmap/shop/settings ")
	}
	clitest.Same(t, "ignored", a.Must(t, clitest.Entry("x", ", namespace: shop")+"---\n"+settings, "delete", "-f", "-", "--ignore-not-found"), "configmap/shop/settings  deleted  rev 3\n")
}

// TestObjectsBesideTheMesh: the commands that change objects take the kinds beside the mesh, too.
func TestObjectsBesideTheMesh(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, both, "apply", "-f", "-")
	get := func(path string) string {
		t.Helper()
		return a.Must(t, "", "get", "cm/settings", "-n", "shop", "-o", "jsonpath="+path)
	}
	clitest.Same(t, "label", a.Must(t, both, "label", "-f", "-", "tier=back"), "namespace/shop           configured  rev 3\nconfigmap/shop/settings  configured  rev 3\nserviceentry/shop/x      configured  rev 3\n")
	clitest.Same(t, "its label", get("{.metadata.labels.tier}"), "back")
	a.Must(t, both, "annotate", "-f", "-", "x/y=z")
	clitest.Same(t, "its annotation", get(`{.metadata.annotations.x/y}`), "z")
	a.Must(t, "", "patch", "cm/settings", "-n", "shop", "--type=strategic", "-p", "data: {c: d}")
	clitest.Same(t, "strategic", get("{.data}"), `{"a":"b","c":"d"}`)
	if o := a.Do(t, both, "diff", "-f", "-"); o.Code != exit.Differences || !strings.Contains(o.Out, "\n-  c: d\n") || !strings.Contains(o.Out, "--- namespace/shop\trev 4") {
		t.Errorf("%+v", o)
	}
}

// TestApplyServerSide: managers have their fields, conflict over them, and take away what they apply
// no more.
func TestApplyServerSide(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	labels := func(text string) string {
		return "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x, namespace: shop, labels: " + text + "}\n"
	}
	whole := clitest.Entry("x", ", namespace: shop, labels: {app: x}")
	for _, step := range []struct {
		file, args string
		code       int
		says, then string
	}{
		{labels("{a: b}"), "", exit.Data, "nothing was applied: stdin: document 1 (line 1): serviceentry/shop/x: spec.hosts: is missing", ""},
		{whole, "", exit.OK, "serviceentry/shop/x  created  rev 2", "app=x"},
		{labels("{tier: back}"), "--field-manager tiers", exit.OK, "configured  rev 3", "app=x tier=back"},
		{labels("{tier: front}"), "--field-manager others", exit.Conflict, `conflict with "tiers"`, "app=x tier=back"},
		{labels("{tier: front}"), "--field-manager others --force-conflicts --dry-run=server", exit.OK, "configured (dry run)", "app=x tier=back"},
		{labels("{tier: front}"), "--field-manager others --force-conflicts", exit.OK, "configured  rev 4", "app=x tier=front"},
		{clitest.Entry("x", ", namespace: shop, labels: {new: x}"), "", exit.OK, "configured  rev 5", "new=x tier=front"},
		{labels("{}"), "--field-manager others", exit.OK, "configured  rev 6", "new=x"},
		{whole + "---\n" + namespaceShop, "--field-manager others --force-conflicts", exit.OK, "namespace/shop       created", "app=x new=x"},
		{whole, "--field-manager=", exit.Usage, "--field-manager is empty: name a manager", "app=x new=x"},
		{whole, "--dry-run=client", exit.Usage, "--dry-run=client: the server alone knows what a server-side apply makes: use --dry-run=server", "app=x new=x"},
		{whole, "--server-side=false --field-manager me", exit.Usage, "--field-manager names who applies server-side: add --server-side, or leave it out", "app=x new=x"},
		{whole, "--field-manager " + strings.Repeat("x", 129), exit.Data, "fieldManager", "app=x new=x"},
		{whole, "more", exit.Usage, "more: name files with -f", "app=x new=x"},
	} {
		o := a.Do(t, step.file, append([]string{"apply", "--server-side", "-f", "-"}, strings.Fields(step.args)...)...)
		if o.Code != step.code || !strings.Contains(o.Out+o.Err, step.says) {
			t.Errorf("%s: %+v", step.args, o)
		}
		has := ""
		if step.then != "" {
			has = strings.Join(strings.Fields(strings.ReplaceAll(a.Must(t, "", "label", "se/x", "-n", "shop", "--list"), "serviceentry/shop/x", "")), " ")
		}
		clitest.Same(t, step.args, has, step.then)
	}
}
