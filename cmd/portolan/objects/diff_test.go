package objects

import (
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("there", ", namespace: shop")+"---\n"+clitest.Entry("same", ", namespace: shop"), "apply", "-f", "-")
	before := a.Store.Version()
	changed := strings.Replace(clitest.Entry("there", ", namespace: shop, labels: {team: a}"), "10.0.0.1", "10.0.0.2", 1)
	files := clitest.Entry("new", ", namespace: shop") + "---\n" + changed + "---\n" + clitest.Entry("same", ", namespace: shop") +
		"---\n" + clitest.Entry("alone", ", namespace: edge")
	o := a.Do(t, files, "diff", "-f", "-")
	golden.Assert(t, o.Out, "diff.txt")
	if o.Code != exit.Differences || o.Err != "" {
		t.Errorf("exit code %d, %q", o.Code, o.Err)
	}
	if v := a.Store.Version(); v != before {
		t.Errorf("the store went from %s to %s", before, v)
	}
	a.Must(t, files, "apply", "-f", "-")
	clitest.Same(t, "after the apply", a.Must(t, files, "diff", "-f", "-"), "")
}

func TestDiffShowsAVersionWhereTheFileHasOne(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("x", ""), "apply", "-f", "-")
	clitest.Same(t, "of what was read", a.Must(t, a.Must(t, "", "get", "se/x", "-o", "yaml"), "diff", "-f", "-"), "")
	o := a.Do(t, clitest.Entry("x", `, resourceVersion: "1"`), "diff", "-f", "-")
	if o.Code != exit.Differences || !strings.Contains(o.Out, "-  resourceVersion: \"2\"\n+  resourceVersion: \"1\"\n") {
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
		{strings.Replace(clitest.Entry("x", ""), "80,", "80000,", 1), []string{"-f", "-"}, exit.Data, "spec.ports[0].number"},
		{"", nil, exit.Usage, "name what to compare"},
		{clitest.Entry("x", ""), []string{"-f", "-", "--server", "http://127.0.0.1:1", "--request-timeout", "20ms"}, exit.Unreachable, "cannot reach the server"},
	} {
		o := a.Do(t, test.stdin, append([]string{"diff"}, test.args...)...)
		if len(test.args) > 2 {
			o = do(t, test.stdin, append([]string{"diff"}, test.args...)...)
		}
		if o.Code != test.code || o.Out != "" || !strings.Contains(o.Err, test.says) {
			t.Errorf("%v: %+v", test.args, o)
		}
	}
}
