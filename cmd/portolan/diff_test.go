package main

import (
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.must(t, entry("there", ", namespace: shop")+"---\n"+entry("same", ", namespace: shop"), "apply", "-f", "-")
	before := a.Store.Version()
	changed := strings.Replace(entry("there", ", namespace: shop, labels: {team: a}"), "10.0.0.1", "10.0.0.2", 1)
	files := entry("new", ", namespace: shop") + "---\n" + changed + "---\n" + entry("same", ", namespace: shop") +
		"---\n" + entry("alone", ", namespace: edge")
	o := a.do(t, files, "diff", "-f", "-")
	golden.Assert(t, o.out, "diff.txt")
	if o.code != exit.Differences || o.err != "" {
		t.Errorf("exit code %d, %q", o.code, o.err)
	}
	if v := a.Store.Version(); v != before {
		t.Errorf("the store went from %s to %s", before, v)
	}
	a.must(t, files, "apply", "-f", "-")
	same(t, "after the apply", a.must(t, files, "diff", "-f", "-"), "")
}

func TestDiffShowsAVersionWhereTheFileHasOne(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.must(t, entry("x", ""), "apply", "-f", "-")
	same(t, "of what was read", a.must(t, a.must(t, "", "get", "se/x", "-o", "yaml"), "diff", "-f", "-"), "")
	o := a.do(t, entry("x", `, resourceVersion: "1"`), "diff", "-f", "-")
	if o.code != exit.Differences || !strings.Contains(o.out, "-  resourceVersion: \"2\"\n+  resourceVersion: \"1\"\n") {
		t.Errorf("%+v", o)
	}
}

func TestDiffErrors(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	for _, test := range []struct {
		stdin string
		args  []string
		code  int
		says  string
	}{
		{"kind: [", []string{"-f", "-"}, exit.Data, "nothing was compared: stdin: document 1"},
		{strings.Replace(entry("x", ""), "80,", "80000,", 1), []string{"-f", "-"}, exit.Data, "spec.ports[0].number"},
		{"", nil, exit.Usage, "name what to compare"},
		{entry("x", ""), []string{"-f", "-", "--server", "http://127.0.0.1:1", "--request-timeout", "20ms"}, exit.Unreachable, "cannot reach the server"},
	} {
		o := a.do(t, test.stdin, append([]string{"diff"}, test.args...)...)
		if len(test.args) > 2 {
			o = do(t, test.stdin, append([]string{"diff"}, test.args...)...)
		}
		if o.code != test.code || o.out != "" || !strings.Contains(o.err, test.says) {
			t.Errorf("%v: %+v", test.args, o)
		}
	}
}
