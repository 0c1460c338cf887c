package main

import (
	"strings"
	"testing"

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
	a.must(t, entry("there", "")+"---\n"+entry("same", ""), "apply", "-f", "-")
	before := a.Store.Version()
	changed := entry("new", "") + "---\n" + strings.Replace(entry("there", ""), "10.0.0.1", "10.0.0.2", 1) + "---\n" + entry("same", "")
	same(t, "stdout", tried(a.must(t, changed, "apply", "-f", "-", "--dry-run=server")),
		"serviceentry/default/new    created (dry run)\n"+
			"serviceentry/default/there  configured (dry run)\n"+
			"serviceentry/default/same   unchanged (dry run)\n")

	stale := entry("there", `, labels: {a: b}, resourceVersion: "1"`)
	trial, done := a.do(t, stale, "apply", "-f", "-", "--dry-run=server"), a.do(t, stale, "apply", "-f", "-")
	if trial != done || trial.code != exit.Conflict {
		t.Errorf("tried %+v, done %+v", trial, done)
	}
	same(t, "delete", tried(a.must(t, "", "delete", "se", "gone", "there", "--ignore-not-found", "--dry-run=server")),
		"serviceentry/default/there  deleted (dry run)\n")
	if o := a.do(t, "", "delete", "se", "gone", "--dry-run=server"); o.code != exit.Failure || !strings.Contains(o.err, "not found") {
		t.Errorf("%+v", o)
	}
	if v := a.Store.Version(); v != before {
		t.Errorf("the store went from %s to %s", before, v)
	}
}

func TestDryRunOfTheClientNeedsNoServer(t *testing.T) {
	t.Parallel()
	nowhere := []string{"--server", "http://127.0.0.1:1", "--dry-run=client"}
	filter := "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: x}\nspec: {priority: 1}\n"
	o := do(t, entry("a", "")+"---\n"+filter, append([]string{"apply", "-f", "-"}, nowhere...)...)
	if want := (outcome{exit.OK, "serviceentry/default/a  valid (dry run)\nenvoyfilter/default/x   valid (dry run)\n",
		"Warning: envoyfilter/default/x: EnvoyFilter is stored but not enforced yet (PTL0122)\n"}); o != want {
		t.Errorf("%+v", o)
	}
	o = do(t, strings.Replace(entry("a", ""), "80,", "80000,", 1), append([]string{"apply", "-f", "-"}, nowhere...)...)
	if o.code != exit.Data || !strings.Contains(o.err, "spec.ports[0].number") {
		t.Errorf("%+v", o)
	}
	o = do(t, "", append([]string{"delete", "se", "a"}, nowhere...)...)
	if want := (outcome{exit.OK, "serviceentry/default/a  valid (dry run)\n", ""}); o != want {
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
		if o, want := do(t, "", strings.Fields(args)...), (outcome{exit.Usage, "", "portolan: " + says + "\n"}); o != want {
			t.Errorf("%s: %+v, want %+v", args, o, want)
		}
	}
	for _, command := range []string{"apply", "delete"} {
		o := do(t, entry("a", ""), command, "-f", "-", "--dry-run=All")
		if want := (outcome{exit.Usage, "", "portolan: --dry-run \"All\": use none, client or server\n"}); o != want {
			t.Errorf("%s: %+v", command, o)
		}
	}
}
