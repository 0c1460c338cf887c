package objects

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

func TestApplyOutcomes(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	two := clitest.Entry("zebra", "") + "---\n" + clitest.Entry("ant", ", namespace: zoo")
	clitest.Same(t, "created, in the order of the input", a.Must(t, two, "apply", "-f", "-"),
		"serviceentry/default/zebra  created  rev 2\nserviceentry/zoo/ant        created  rev 2\n")
	changed := strings.Replace(two, "10.0.0.1", "10.0.0.2", 1)
	clitest.Same(t, "changed", a.Must(t, changed, "apply", "-f", "-"),
		"serviceentry/default/zebra  configured  rev 3\nserviceentry/zoo/ant        unchanged   rev 2\n")
	clitest.Same(t, "again", a.Must(t, changed, "apply", "-f", "-"),
		"serviceentry/default/zebra  unchanged  rev 3\nserviceentry/zoo/ant        unchanged  rev 2\n")
	if v := a.Store.Version(); v != "3" {
		t.Errorf("the store is at %s", v)
	}
}

func TestApplyReadsFilesAndDirectories(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	dir := clitest.Write(t, map[string]string{
		"b.yaml": clitest.Entry("b", ""), "a.yml": clitest.Entry("a", ""), "notes.txt": "no manifest",
		"c.json":     `{"apiVersion":"networking.istio.io/v1","kind":"Sidecar","metadata":{"name":"c"},"spec":{"egress":[{"hosts":["./*"]}]}}`,
		"sub/d.yaml": clitest.Entry("d", ""), "sub/odd.txt": clitest.Entry("odd", ""),
	})
	names := func(out string) string {
		var list []string
		for line := range strings.Lines(out) {
			list = append(list, strings.Fields(line)[0])
		}
		return strings.Join(list, " ")
	}
	clitest.Same(t, "directory", names(a.Must(t, "", "apply", "-n", "shop", "-f", dir)),
		"serviceentry/shop/a serviceentry/shop/b sidecar/shop/c")
	clitest.Same(t, "with subdirectories", names(a.Must(t, "", "apply", "-n", "shop", "-R", "-f", dir)),
		"serviceentry/shop/a serviceentry/shop/b sidecar/shop/c serviceentry/shop/d")
	clitest.Same(t, "files and stdin", names(a.Must(t, clitest.Entry("e", ""), "apply", "-n", "shop", "-f", filepath.Join(dir, "sub", "odd.txt"), "-f", "-")),
		"serviceentry/shop/odd serviceentry/shop/e")
}

func TestApplyWarnsOnce(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	filter := "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {name: x}\nspec: {url: file:///b, imagePullSecret: a}\n"
	o := a.Do(t, filter, "apply", "-f", "-")
	clitest.Same(t, "stderr", o.Err, "Warning: wasmplugin/default/x: spec.imagePullSecret has no effect here: it is for images (oci://), which are refused (PTL0121)\n")
	clitest.Same(t, "stdout", o.Out, "wasmplugin/default/x  created  rev 2\n")
}

// TestFaultsOfSpecsNeedNoServer: where no server answers, apply tells the faults in the specs of
// files.
func TestFaultsOfSpecsNeedNoServer(t *testing.T) {
	t.Parallel()
	bad := strings.Replace(clitest.Entry("bad", ""), "number: 80", "number: 80000", 1)
	o := do(t, clitest.Entry("good", "")+"---\n"+bad, "apply", "-f", "-", "--server", "http://127.0.0.1:1", "--request-timeout", "100ms")
	if want := "stdin: document 2 (line 11): serviceentry/default/bad: spec.ports[0].number"; o.Code != exit.Data || !strings.Contains(o.Err, want) {
		t.Errorf("exit code %d: %s, and must say %q", o.Code, o.Err, want)
	}
}

// TestApplyBadInput: each bad input that users may have gives one clear error and changes
// nothing.
func TestApplyBadInput(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("there", ", namespace: shop"), "apply", "-f", "-")
	before := a.Store.Version()
	good := clitest.Entry("good", ", namespace: shop") + "---\n"
	tests := []struct {
		name, stdin string
		args        []string
		code        int
		says        string // the whole of stderr, after "portolan: "
	}{
		{"broken YAML", good + "kind: [", nil, exit.Data,
			"nothing was applied: stdin: document 2 (line 11): not valid YAML: line 11: did not find expected node content"},
		{"unknown kind", good + "apiVersion: v1\nkind: Pod\nmetadata: {name: x}", nil, exit.Data,
			`nothing was applied: stdin: document 2 (line 11): pod/x: unknown kind "Pod" of apiVersion "v1": see portolan api-resources for those served`},
		{"unknown field", good + strings.Replace(clitest.Entry("bad", ", namespace: shop"), "hosts:", "hots:", 1), nil, exit.Data,
			"nothing was applied: stdin: document 2 (line 11): serviceentry/shop/bad: spec.hots: unknown field: did you mean hosts?"},
		{"another namespace", good, []string{"-n", "edge"}, exit.Data,
			`nothing was applied: stdin: document 1 (line 1): serviceentry/shop/good: metadata.namespace: is "shop", and -n says "edge": leave one of them out`},
		{"one key twice", good + good, nil, exit.Data,
			"nothing was applied: stdin: document 2 (line 11): serviceentry/shop/good: is there twice, also in stdin: document 1 (line 1)"},
		{"an invalid port", good + strings.Replace(clitest.Entry("bad", ", namespace: shop"), "number: 80,", "number: 70000,", 1), nil, exit.Data,
			"nothing was applied: stdin: document 2 (line 11): serviceentry/shop/bad: spec.ports[0].number: must be a port from 1 to 65535, is 70000"},
		{"a stale version", good + clitest.Entry("there", `, namespace: shop, labels: {a: b}, resourceVersion: "1"`), nil, exit.Conflict,
			"nothing was applied: stdin: document 2 (line 11): conflict: serviceentry/shop/there changed (you had version 1, the store has 2): " +
				"see portolan diff serviceentry/there -n shop --from 1"},
		{"a version of what is gone", clitest.Entry("gone", `, namespace: shop, resourceVersion: "1"`), nil, exit.Conflict,
			"nothing was applied: stdin: document 1 (line 1): conflict: serviceentry/shop/gone is gone (you had version 1): " +
				"see portolan diff serviceentry/gone -n shop --from 1\nportolan import takes files of another store, or of Kubernetes: it ignores their resourceVersions"},
		{"no objects", "# nothing\n---\n", nil, exit.Data,
			"nothing was applied: stdin: no objects there"},
		{"several faults", strings.Replace(clitest.Entry("UPPER", ", namespace: shop"), "STATIC", "STATISTIC", 1) + "---\nkind: Pod\n", nil, exit.Data,
			"nothing was applied: 2 faults:\n" +
				`  stdin: document 1 (line 1): serviceentry/shop/UPPER: spec.resolution: must be one of NONE, STATIC, DNS, DNS_ROUND_ROBIN, DYNAMIC_DNS, is "STATISTIC"` + "\n" +
				"  stdin: document 2 (line 11): pod: apiVersion: is missing: say which API this is, such as networking.istio.io/v1"},
		{"in the order of the documents", clitest.Entry("UPPER", ", namespace: shop") + "---\n" + strings.Replace(clitest.Entry("b", ", namespace: shop"), "STATIC", "STATISTIC", 1), nil, exit.Data,
			"nothing was applied: 2 faults:\n" +
				`  stdin: document 1 (line 1): serviceentry/shop/UPPER: metadata.name: "UPPER" is not valid: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character` + "\n" +
				`  stdin: document 2 (line 11): serviceentry/shop/b: spec.resolution: must be one of NONE, STATIC, DNS, DNS_ROUND_ROBIN, DYNAMIC_DNS, is "STATISTIC"`},
		{"a URL that is none", "", []string{"-f", "ftp://x/y.yaml"}, exit.Data, "nothing was applied: -f ftp://x/y.yaml: is no URL of a file: give http://HOST/PATH or https://HOST/PATH"},
		{"no kustomization", "", []string{"-k", "absent"}, exit.Data, "nothing was applied: -k absent: no such file or directory"},
		{"files beside a kustomization", "", []string{"-k", "absent"}, exit.Usage, "-k is a directory that is built first, and -f files as they are: leave one of them out"},
		{"no file", "", []string{"-f", "absent.yaml"}, exit.Data, "nothing was applied: -f absent.yaml: no such file or directory"},
		{"stdin twice", "", []string{"-f", "-"}, exit.Usage, "-f - is given twice: stdin can be read once"},
		{"file without -f", "", []string{"shop.yaml"}, exit.Usage, "shop.yaml: name files with -f\nSee 'portolan apply --help'"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"apply"}, test.args...)
			if test.name != "no file" && test.name != "no kustomization" {
				args = append(args, "-f", "-")
			}
			o := a.Do(t, test.stdin, args...)
			clitest.Same(t, "stderr", o.Err, "portolan: "+test.says+"\n")
			if o.Code != test.code || o.Out != "" {
				t.Errorf("exit code %d, want %d; stdout %q", o.Code, test.code, o.Out)
			}
			if v := a.Store.Version(); v != before {
				t.Errorf("the store went from %s to %s", before, v)
			}
		})
	}
}

func TestApplyNeedsFiles(t *testing.T) {
	t.Parallel()
	o := do(t, "", "apply")
	if o.Code != exit.Usage || !strings.Contains(o.Err, "-f FILE") {
		t.Errorf("%+v", o)
	}
}

func TestDirectoriesMustHaveManifests(t *testing.T) {
	t.Parallel()
	dir := clitest.Write(t, map[string]string{"notes.txt": "none", "sub/x.yaml": "# none\n"})
	tests := []struct {
		args []string
		says string
	}{
		{nil, "-f " + dir + ": no file in it ends in .yaml, .yml or .json: -R looks in its subdirectories too"},
		{[]string{"-R"}, dir + ": no objects there"},
		{[]string{"-R", "-f", dir + "/notes"}, "-f " + dir + "/notes: no such file or directory"},
	}
	for _, test := range tests {
		o := do(t, "", append([]string{"apply", "-f", dir}, test.args...)...)
		if want := (clitest.Outcome{Code: exit.Data, Err: "portolan: nothing was applied: " + test.says + "\n"}); o != want {
			t.Errorf("%v: %+v", test.args, o)
		}
	}
}

func TestKeysMustBeUniqueOverFiles(t *testing.T) {
	t.Parallel()
	dir := clitest.Write(t, map[string]string{"a.yaml": clitest.Entry("x", ""), "b.yaml": clitest.Entry("z", "") + "---\n" + clitest.Entry("x", ", namespace: default")})
	o := do(t, "", "apply", "-f", dir)
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	clitest.Same(t, "stderr", o.Err, "portolan: nothing was applied: "+b+": document 2 (line 11): serviceentry/default/x: is there twice, also in "+a+": document 1 (line 1)\n")
	if o.Code != exit.Data {
		t.Errorf("exit code %d", o.Code)
	}
}
