package main

import (
	"strings"
	"testing"
)

func TestApplyDryRunOfTheServer(t *testing.T) {
	t.Parallel()
	a := startAPI(t)
	a.must(t, entry("there", "")+"---\n"+entry("same", ""), "apply", "-f", "-")
	before := a.Store.Version()
	changed := entry("new", "") + "---\n" + strings.Replace(entry("there", ""), "10.0.0.1", "10.0.0.2", 1) + "---\n" + entry("same", "")
	same(t, "stdout", a.must(t, changed, "apply", "-f", "-", "--dry-run=server"),
		"serviceentry/default/new    created (dry run)\n"+
			"serviceentry/default/there  configured (dry run)\n"+
			"serviceentry/default/same   unchanged (dry run)\n")

	stale := entry("there", `, labels: {a: b}, resourceVersion: "1"`)
	tried, done := a.do(t, stale, "apply", "-f", "-", "--dry-run=server"), a.do(t, stale, "apply", "-f", "-")
	if tried != done || tried.code != exitConflict {
		t.Errorf("tried %+v, done %+v", tried, done)
	}
	same(t, "delete", a.must(t, "", "delete", "se", "gone", "there", "--ignore-not-found", "--dry-run=server"),
		"serviceentry/default/there  deleted (dry run)\n")
	if o := a.do(t, "", "delete", "se", "gone", "--dry-run=server"); o.code != exitFailure || !strings.Contains(o.err, "not found") {
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
	if want := (outcome{exitOK, "serviceentry/default/a  valid (dry run)\nenvoyfilter/default/x   valid (dry run)\n",
		"Warning: envoyfilter/default/x: EnvoyFilter is stored but not enforced yet\n"}); o != want {
		t.Errorf("%+v", o)
	}
	o = do(t, strings.Replace(entry("a", ""), "80,", "80000,", 1), append([]string{"apply", "-f", "-"}, nowhere...)...)
	if o.code != exitData || !strings.Contains(o.err, "spec.ports[0].number") {
		t.Errorf("%+v", o)
	}
	o = do(t, "", append([]string{"delete", "se", "a"}, nowhere...)...)
	if want := (outcome{exitOK, "serviceentry/default/a  valid (dry run)\n", ""}); o != want {
		t.Errorf("%+v", o)
	}
}

func TestDryRunIsOfAKnownKind(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"apply", "delete"} {
		o := do(t, entry("a", ""), command, "-f", "-", "--dry-run=All")
		if want := (outcome{exitUsage, "", "portolan: --dry-run \"All\": use none, client or server\n"}); o != want {
			t.Errorf("%s: %+v", command, o)
		}
	}
}
