package objects

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// checkedEntry is a WorkloadEntry that waits for reports, as kubectl writes it.
func checkedEntry(name, status string) string {
	return `apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: ` + name + `, namespace: shop, uid: u-` + name + `, resourceVersion: "77", annotations: {proxy.istio.io/health-checks-enabled: "true"}}
spec: {address: 10.0.0.1}
` + status + "---\n"
}

// TestImportTakesHealthOver: a machine that was healthy in its cluster stays healthy; what is not taken over
// is told.
func TestImportTakesHealthOver(t *testing.T) {
	t.Parallel()
	a := startWithStatuses(t)
	healthy := func(value string) string {
		return `status: {observedGeneration: 1, conditions: [{type: Other, status: "True"}, {type: Healthy, status: "` + value + `", message: probed, lastProbeTime: "2026-01-31T12:00:00Z", lastTransitionTime: "2026-01-30T12:00:00Z"}]}` + "\n"
	}
	file := checkedEntry("up", healthy("True")) + checkedEntry("down", healthy("False")) + checkedEntry("unsaid", "") + checkedEntry("odd", healthy("Unknown"))
	const without = ": it gets no traffic until it is reported healthy: its status has no condition Healthy that is True or False"
	check := func(o clitest.Outcome, suffix string) {
		t.Helper()
		for _, line := range [][]string{
			{"workloadentry/shop/up", "created" + suffix, "healthy, as its status says"},
			{"workloadentry/shop/down", "created" + suffix, "unhealthy, as its status says"},
		} {
			if o.Code != exit.OK || !strings.Contains(o.Out, line[0]) || !strings.Contains(o.Out, line[1]) || !strings.Contains(o.Out, line[2]) {
				t.Errorf("no %q in %+v", line, o)
			}
		}
		for _, name := range []string{"unsaid", "odd"} {
			if !strings.Contains(o.Err, "workloadentry/shop/"+name+without) {
				t.Errorf("no warning of %s: %s", name, o.Err)
			}
		}
	}
	shown := func(want string) {
		t.Helper()
		clitest.Same(t, "stored", a.Must(t, "", "get", "we", "-n", "shop", "--consistent", "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Healthy")].status} {.status.conditions[?(@.type=="Healthy")].lastProbeTime};{end}`), want)
	}
	check(a.Do(t, file, "import", "-f", "-", "--dry-run=server"), " (dry run)")
	shown("")
	check(a.Do(t, file, "import", "-f", "-"), "")
	const probed = "2026-01-31T12:00:00Z"
	shown("down False " + probed + ";odd  ;unsaid  ;up True " + probed + ";")

	again := checkedEntry("up", healthy("False")) + checkedEntry("unsaid", healthy("True"))
	o := a.Do(t, again, "import", "-f", "-")
	if !strings.Contains(o.Err, "workloadentry/shop/up: it stays healthy, as the store has it, and its status says unhealthy: portolan patch --subresource=status changes it") ||
		!strings.Contains(o.Out, "healthy, as its status says") {
		t.Errorf("imported again: %+v", o)
	}
	shown("down False " + probed + ";odd  ;unsaid True " + probed + ";up True " + probed + ";")
}
