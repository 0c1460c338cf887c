package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

func TestApplyOutcomes(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	two := entry("zebra", "") + "---\n" + entry("ant", ", namespace: zoo")
	same(t, "created, in the order of the input", a.must(t, two, "apply", "-f", "-"),
		"serviceentry/default/zebra  created  rev 2\nserviceentry/zoo/ant        created  rev 2\n")
	changed := strings.Replace(two, "10.0.0.1", "10.0.0.2", 1)
	same(t, "changed", a.must(t, changed, "apply", "-f", "-"),
		"serviceentry/default/zebra  configured  rev 3\nserviceentry/zoo/ant        unchanged   rev 2\n")
	same(t, "again", a.must(t, changed, "apply", "-f", "-"),
		"serviceentry/default/zebra  unchanged  rev 3\nserviceentry/zoo/ant        unchanged  rev 2\n")
	if v := a.Store.Version(); v != "3" {
		t.Errorf("the store is at %s", v)
	}
}

func TestApplyReadsFilesAndDirectories(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	dir := write(t, map[string]string{
		"b.yaml": entry("b", ""), "a.yml": entry("a", ""), "notes.txt": "no manifest",
		"c.json":     `{"apiVersion":"networking.istio.io/v1","kind":"Sidecar","metadata":{"name":"c"},"spec":{"egress":[{"hosts":["./*"]}]}}`,
		"sub/d.yaml": entry("d", ""), "sub/odd.txt": entry("odd", ""),
	})
	names := func(out string) string {
		var list []string
		for line := range strings.Lines(out) {
			list = append(list, strings.Fields(line)[0])
		}
		return strings.Join(list, " ")
	}
	same(t, "directory", names(a.must(t, "", "apply", "-n", "shop", "-f", dir)),
		"serviceentry/shop/a serviceentry/shop/b sidecar/shop/c")
	same(t, "with subdirectories", names(a.must(t, "", "apply", "-n", "shop", "-R", "-f", dir)),
		"serviceentry/shop/a serviceentry/shop/b sidecar/shop/c serviceentry/shop/d")
	same(t, "files and stdin", names(a.must(t, entry("e", ""), "apply", "-n", "shop", "-f", filepath.Join(dir, "sub", "odd.txt"), "-f", "-")),
		"serviceentry/shop/odd serviceentry/shop/e")
}

func TestApplyWarnsOnce(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	filter := "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: x}\nspec: {priority: 1}\n"
	o := a.do(t, filter, "apply", "-f", "-")
	same(t, "stderr", o.err, "Warning: envoyfilter/default/x: EnvoyFilter is stored but not enforced yet (PTL0122)\n")
	same(t, "stdout", o.out, "envoyfilter/default/x  created  rev 2\n")
}

// TestApplyBadInput: each bad input that users may have gives one clear error and changes
// nothing.
func TestApplyBadInput(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.must(t, entry("there", ", namespace: shop"), "apply", "-f", "-")
	before := a.Store.Version()
	good := entry("good", ", namespace: shop") + "---\n"
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
		{"unknown field", good + strings.Replace(entry("bad", ", namespace: shop"), "hosts:", "hots:", 1), nil, exit.Data,
			"nothing was applied: stdin: document 2 (line 11): serviceentry/shop/bad: spec.hots: unknown field: did you mean hosts?"},
		{"another namespace", good, []string{"-n", "edge"}, exit.Data,
			`nothing was applied: stdin: document 1 (line 1): serviceentry/shop/good: metadata.namespace: is "shop", and -n says "edge": leave one of them out`},
		{"one key twice", good + good, nil, exit.Data,
			"nothing was applied: stdin: document 2 (line 11): serviceentry/shop/good: is there twice, also in stdin: document 1 (line 1)"},
		{"an invalid port", good + strings.Replace(entry("bad", ", namespace: shop"), "number: 80,", "number: 70000,", 1), nil, exit.Data,
			"nothing was applied: stdin: document 2 (line 11): serviceentry/shop/bad: spec.ports[0].number: must be a port from 1 to 65535, is 70000"},
		{"a stale version", good + entry("there", `, namespace: shop, labels: {a: b}, resourceVersion: "1"`), nil, exit.Conflict,
			"nothing was applied: stdin: document 2 (line 11): conflict: serviceentry/shop/there changed (you had version 1, the store has 2): " +
				"see portolan diff serviceentry/there -n shop --from 1"},
		{"a version of what is gone", entry("gone", `, namespace: shop, resourceVersion: "1"`), nil, exit.Conflict,
			"nothing was applied: stdin: document 1 (line 1): conflict: serviceentry/shop/gone is gone (you had version 1): " +
				"see portolan diff serviceentry/gone -n shop --from 1\nportolan import takes files of another store, or of Kubernetes: it ignores their resourceVersions"},
		{"no objects", "# nothing\n---\n", nil, exit.Data,
			"nothing was applied: stdin: no objects there"},
		{"several faults", strings.Replace(entry("UPPER", ", namespace: shop"), "STATIC", "STATISTIC", 1) + "---\nkind: Pod\n", nil, exit.Data,
			"nothing was applied: 2 faults:\n" +
				`  stdin: document 1 (line 1): serviceentry/shop/UPPER: spec.resolution: must be one of NONE, STATIC, DNS, DNS_ROUND_ROBIN, DYNAMIC_DNS, is "STATISTIC"` + "\n" +
				"  stdin: document 2 (line 11): pod: apiVersion: is missing: say which API this is, such as networking.istio.io/v1"},
		{"a URL", "", []string{"-f", "https://x/y.yaml"}, exit.Data, "nothing was applied: -f https://x/y.yaml: is no file: read it with another program, as in: curl -sf https://x/y.yaml | portolan ... -f -"},
		{"no file", "", []string{"-f", "absent.yaml"}, exit.Data, "nothing was applied: -f absent.yaml: no such file or directory"},
		{"stdin twice", "", []string{"-f", "-"}, exit.Usage, "-f - is given twice: stdin can be read once"},
		{"file without -f", "", []string{"shop.yaml"}, exit.Usage, "shop.yaml: name files with -f\nSee 'portolan apply --help'"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"apply"}, test.args...)
			if test.name != "no file" {
				args = append(args, "-f", "-")
			}
			o := a.do(t, test.stdin, args...)
			same(t, "stderr", o.err, "portolan: "+test.says+"\n")
			if o.code != test.code || o.out != "" {
				t.Errorf("exit code %d, want %d; stdout %q", o.code, test.code, o.out)
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
	if o.code != exit.Usage || !strings.Contains(o.err, "-f FILE") {
		t.Errorf("%+v", o)
	}
}

func TestDirectoriesMustHaveManifests(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"notes.txt": "none", "sub/x.yaml": "# none\n"})
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
		if want := (outcome{exit.Data, "", "portolan: nothing was applied: " + test.says + "\n"}); o != want {
			t.Errorf("%v: %+v", test.args, o)
		}
	}
}

func TestKeysMustBeUniqueOverFiles(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"a.yaml": entry("x", ""), "b.yaml": entry("z", "") + "---\n" + entry("x", ", namespace: default")})
	o := do(t, "", "apply", "-f", dir)
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	same(t, "stderr", o.err, "portolan: nothing was applied: "+b+": document 2 (line 11): serviceentry/default/x: is there twice, also in "+a+": document 1 (line 1)\n")
	if o.code != exit.Data {
		t.Errorf("exit code %d", o.code)
	}
}
