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

// TestExportHasTheHealth: the export of a store has the health of its workloads, and an import of it takes
// that over: the export of the other store is the same text.
func TestExportHasTheHealth(t *testing.T) {
	t.Parallel()
	first := startWithStatuses(t)
	healthy := func(value string) string {
		return `status: {conditions: [{type: Healthy, status: "` + value + `", reason: Probe, message: probed, lastProbeTime: "2026-01-31T12:00:00Z", lastTransitionTime: "2026-01-30T12:00:00Z"}]}` + "\n"
	}
	first.Must(t, checkedEntry("up", healthy("True"))+checkedEntry("down", healthy("False")), "import", "-f", "-")
	first.Must(t, checkedEntry("unsaid", "")+clitest.Entry("web", mine), "import", "-f", "-")
	text := first.Must(t, "", "export")
	for word, want := range map[string]int{"\nstatus:\n  conditions:\n  - lastProbeTime: ": 2, "    status: \"True\"\n    type: Healthy\n": 1, "    status: \"False\"\n    type: Healthy\n": 1, "observedGeneration": 0, "status:": 4} {
		if n := strings.Count(text, word); n != want {
			t.Errorf("%q is %d times in\n%s", word, n, text)
		}
	}
	second := startWithStatuses(t)
	o := second.Do(t, text, "import", "-f", "-")
	if o.Code != exit.OK || strings.Count(o.Out, "healthy, as its status says") != 2 || strings.Count(o.Err, "Warning") != 1 || !strings.Contains(o.Err, "workloadentry/shop/unsaid: it gets no traffic") {
		t.Errorf("imported: %+v", o)
	}
	clitest.Same(t, "the export of the import", second.Must(t, "", "export"), text)
	if o := second.Do(t, text, "apply", "-f", "-"); o.Code != exit.OK {
		t.Errorf("applied: %+v", o)
	}
	clitest.Same(t, "the diff", second.Must(t, text, "diff", "-f", "-"), "")
	revision := strings.Fields(first.Must(t, "", "get", "we", "unsaid", "-n", "shop", "--no-headers", "-o", "custom-columns=R:.metadata.resourceVersion"))[0]
	if past := first.Must(t, "", "export", "--revision", revision); strings.Contains(past, "status") || !strings.Contains(past, "name: up") {
		t.Errorf("the export of revision %s:\n%s", revision, past)
	}
}
