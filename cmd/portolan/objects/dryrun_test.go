package objects

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// tried returns those lines of a dry run that say what would happen to each object.
func tried(out string) string {
	var lines strings.Builder
	for line := range strings.Lines(out) {
		if strings.Contains(line, " (dry run)") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

func TestApplyDryRunOfTheServer(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.Must(t, clitest.Entry("there", "")+"---\n"+clitest.Entry("same", ""), "apply", "-f", "-")
	before := a.Store.Version()
	changed := clitest.Entry("new", "") + "---\n" + strings.Replace(clitest.Entry("there", ""), "10.0.0.1", "10.0.0.2", 1) + "---\n" + clitest.Entry("same", "")
	clitest.Same(t, "stdout", tried(a.Must(t, changed, "apply", "-f", "-", "--dry-run=server")),
		"serviceentry/default/new    created (dry run)\n"+
			"serviceentry/default/there  configured (dry run)\n"+
			"serviceentry/default/same   unchanged (dry run)\n")

	stale := clitest.Entry("there", `, labels: {a: b}, resourceVersion: "1"`)
	trial, done := a.Do(t, stale, "apply", "-f", "-", "--dry-run=server"), a.Do(t, stale, "apply", "-f", "-")
	if trial != done || trial.Code != exit.Conflict {
		t.Errorf("tried %+v, done %+v", trial, done)
	}
	clitest.Same(t, "delete", tried(a.Must(t, "", "delete", "se", "gone", "there", "--ignore-not-found", "--dry-run=server")),
		"serviceentry/default/there  deleted (dry run)\n")
	if o := a.Do(t, "", "delete", "se", "gone", "--dry-run=server"); o.Code != exit.Failure || !strings.Contains(o.Err, "not found") {
		t.Errorf("%+v", o)
	}
	if v := a.Store.Version(); v != before {
		t.Errorf("the store went from %s to %s", before, v)
	}
}

func TestDryRunOfTheClientNeedsNoServer(t *testing.T) {
	t.Parallel()
	nowhere := []string{"--server", "http://127.0.0.1:1", "--dry-run=client"}
	filter := "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {name: x}\nspec: {url: file:///b, imagePullSecret: a}\n"
	o := do(t, clitest.Entry("a", "")+"---\n"+filter, append([]string{"apply", "-f", "-"}, nowhere...)...)
	if want := (clitest.Outcome{Code: exit.OK, Out: "serviceentry/default/a  valid (dry run)\nwasmplugin/default/x    valid (dry run)\n", Err: "Warning: wasmplugin/default/x: spec.imagePullSecret has no effect here: it is for images (oci://), which are refused (PTL0121)\n"}); o != want {
		t.Errorf("%+v", o)
	}
	o = do(t, strings.Replace(clitest.Entry("a", ""), "80,", "80000,", 1), append([]string{"apply", "-f", "-"}, nowhere...)...)
	if o.Code != exit.Data || !strings.Contains(o.Err, "spec.ports[0].number") {
		t.Errorf("%+v", o)
	}
	o = do(t, "", append([]string{"delete", "se", "a"}, nowhere...)...)
	if want := (clitest.Outcome{Code: exit.OK, Out: "serviceentry/default/a  valid (dry run)\n"}); o != want {
		t.Errorf("%+v", o)
	}
}

func TestDryRunIsOfAKnownKind(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"delete -f - --dry-run":                       "--dry-run needs a value: change nothing: client reads and validates, without a server; server shows what would become of each object, and which proxies are concerned\nSee 'portolan delete --help'",
		"rollback -A --to-revision 1 --dry-run":       "--dry-run needs a value: change nothing: server shows what would become of each object, and which proxies are concerned\nSee 'portolan rollback --help'",
		"apply -f - --xds":                            "--xds shows what a dry run of the server finds: add --dry-run=server",
		"apply -f - --dry-run=client --xds":           "--xds shows what a dry run of the server finds: add --dry-run=server",
		"import -f - --dry-run=server --xds=all":      `--xds "all": use names or diff`,
		"delete -f - --dry-run=server --wait":         "--wait waits for a change that is made: leave --dry-run out",
		"rollback -A --to-revision 1 -o wide --yes":   `-o "wide": use table, json, yaml or name`,
		"rollback -A --to-revision 1 -y --timeout 3s": "--timeout is for --wait: give both or neither; --request-timeout is how long the change itself may take",
	} {
		if o, want := do(t, "", strings.Fields(args)...), (clitest.Outcome{Code: exit.Usage, Err: "portolan: " + says + "\n"}); o != want {
			t.Errorf("%s: %+v, want %+v", args, o, want)
		}
	}
	for _, command := range []string{"apply", "delete"} {
		o := do(t, clitest.Entry("a", ""), command, "-f", "-", "--dry-run=All")
		if want := (clitest.Outcome{Code: exit.Usage, Err: "portolan: --dry-run \"All\": use none, client or server\n"}); o != want {
			t.Errorf("%s: %+v", command, o)
		}
	}
}
