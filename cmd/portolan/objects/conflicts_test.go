package objects

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// TestApplyTellsOfAFieldOnce: a field that several managers own is one fault, with their names and
// the ways out.
func TestApplyTellsOfAFieldOnce(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	labels := func(text string) string {
		return "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x, namespace: shop, labels: " + text + "}\n"
	}
	a.Must(t, clitest.Entry("x", ", namespace: shop"), "apply", "-f", "-")
	for _, manager := range []string{"b", "a"} {
		a.Must(t, labels("{tier: back, team: books}"), "apply", "--server-side", "--field-manager", manager, "-f", "-")
	}
	const hint = "\n--force-conflicts takes the fields; or leave them out of the file\n"
	const at = "stdin: document 1 (line 1): serviceentry/shop/x: "
	for _, test := range []struct{ name, file, args, says string }{
		{"server-side", labels("{tier: front}"), "--server-side --field-manager c",
			"portolan: nothing was applied: " + at + `metadata.labels.tier: conflict with "a" and "b"` + hint},
		{"plain", clitest.Entry("x", ", namespace: shop, labels: {tier: front}"), "",
			"portolan: nothing was applied: " + at + `metadata.labels.tier: conflict with "a" and "b"` + hint},
		{"two fields", labels("{tier: front, team: c}"), "--server-side --field-manager c", "portolan: nothing was applied: 2 faults:\n  " +
			at + `metadata.labels.team: conflict with "a" and "b"` + "\n  " + at + `metadata.labels.tier: conflict with "a" and "b"` + hint},
		{"in parts", labels("{tier: front}"), "--server-side --field-manager c --chunks 1", `metadata.labels.tier: conflict with "a" and "b"` + hint},
	} {
		o := a.Do(t, test.file, append([]string{"apply", "-f", "-"}, strings.Fields(test.args)...)...)
		if o.Code != exit.Conflict || !strings.HasSuffix(o.Err, test.says) {
			t.Errorf("%s: %d\n%s\nwant\n%s", test.name, o.Code, o.Err, test.says)
		}
	}
}
