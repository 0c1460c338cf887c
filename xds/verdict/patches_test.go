package verdict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestVerdictsOfPatches: a patch that a server could not apply has a verdict with the resources of all
// servers. One that matches nothing has one if all servers with proxies say so of this version, and an
// Envoy is connected that the EnvoyFilter selects.
func TestVerdictsOfPatches(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.Object("EnvoyFilter", "p", `{workloadSelector: {labels: {app: web}}, configPatches: [
	  {applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 7s}}}, {applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 8s}}}]}`))
	const path = "networking.istio.io/EnvoyFilter/default/p"
	version := ""
	for object := range w.Context().EnvoyFilters() {
		version = object.ResourceVersion
	}
	idle := func(version string) status.IdlePatch {
		return status.IdlePatch{Filter: path, Version: version, Index: 1}
	}
	failed := func(count int, on ...string) status.FailedPatch {
		return status.FailedPatch{Filter: path, Message: "no good", Resources: on, Count: count}
	}
	replicas := func(all ...status.Replica) (out pmap.Map[*status.Replica]) {
		for i, r := range all {
			r.ID = string(rune('a' + i))
			out = out.Set(r.ID, &r)
		}
		return out
	}
	says, silent, without := status.Replica{Proxies: 1, IdlePatches: []status.IdlePatch{idle(version)}}, status.Replica{Proxies: 1}, status.Replica{}
	before := status.Replica{Proxies: 1, IdlePatches: []status.IdlePatch{idle(version + "0")}}
	web, offline := atAddress("w", "10.0.0.1", "r"), atAddress("w", "10.0.0.1", "")
	other := atAddress("o", "10.0.0.2", "r")
	other.Labels = nil
	const nothing = "default/p matches nothing in any connected proxy"
	const unused = "default/p selects no known proxy: it has no effect until one has the labels"
	var x *index.Index
	for _, step := range []struct {
		name                 string
		proxies              pmap.Map[*status.Proxy]
		replicas             pmap.Map[*status.Replica]
		failed, idle, unused []string
	}{
		{name: "nobody is there", unused: []string{unused}},
		{name: "nobody is selected", proxies: proxies(other), replicas: replicas(says), unused: []string{unused}},
		{name: "all servers say so", proxies: proxies(web), replicas: replicas(says, says, without), idle: []string{nothing}},
		{name: "a server has a match", proxies: proxies(web), replicas: replicas(says, silent)},
		{name: "of another version", proxies: proxies(web), replicas: replicas(before, before)},
		{name: "the proxy is offline", proxies: proxies(offline, other), replicas: replicas(says)},
		{name: "it is back", proxies: proxies(web, other), replicas: replicas(says), idle: []string{nothing}},
		{name: "one server fails", proxies: proxies(web), replicas: replicas(status.Replica{FailedPatches: []status.FailedPatch{failed(1, "CDS a")}}),
			failed: []string{"default/p cannot be applied to CDS a: no good"}},
		{name: "two servers fail", proxies: proxies(web), replicas: replicas(
			status.Replica{FailedPatches: []status.FailedPatch{failed(5, "CDS a", "CDS b", "CDS c")}}, status.Replica{FailedPatches: []status.FailedPatch{failed(1, "CDS a")}}),
			failed: []string{"default/p cannot be applied to CDS a, CDS b, CDS c and 2 others: no good"}},
		{name: "all is well", proxies: proxies(web), replicas: replicas(silent)},
	} {
		facts := verdict.Facts{Mesh: w.Context(), Proxies: step.proxies, Replicas: step.replicas}
		var next *index.Index
		for code, want := range map[verdict.Code][]string{verdict.PatchFailed: step.failed, verdict.PatchIdle: step.idle, verdict.PolicyUnused: step.unused} {
			var got []string
			if next, got = verdictsOf(t, x, facts, code); !cmp.Equal(want, got, cmpopts.EquateEmpty()) {
				t.Errorf("%s: %s: %q, want %q", step.name, code, got, want)
			}
		}
		x = next
	}
}

// TestAdviceOnPatches: who writes an EnvoyFilter anew as it is hears what servers know of its patches, and
// who changes it does not.
func TestAdviceOnPatches(t *testing.T) {
	t.Parallel()
	const before, after = "{configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 7s}}}]}", "{configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 8s}}}]}"
	r := &status.Replica{ID: "a", Proxies: 1, FailedPatches: []status.FailedPatch{{Filter: "networking.istio.io/EnvoyFilter/default/p", Message: "no good", Resources: []string{"CDS a"}, Count: 1}}}
	for spec, want := range map[string]bool{before: true, after: false} {
		w := xdstest.NewWorld(t, xdstest.Object("EnvoyFilter", "p", before))
		facts := verdict.Facts{Mesh: w.Context(), Proxies: proxies(atAddress("w", "10.0.0.1", "r")), Replicas: pmap.Map[*status.Replica]{}.Set(r.ID, r)}
		w.Apply(xdstest.Object("EnvoyFilter", "p", spec))
		d := deletions{is: facts, would: verdict.Facts{Mesh: w.Context(), Proxies: facts.Proxies}}
		var written *config.Config
		for written = range w.Context().EnvoyFilters() {
		}
		advice := index.NewKeeper(d).Advise([]storage.Op{{Verb: storage.Update, Config: written}})
		if got := slices.ContainsFunc(advice[0], func(a finding.Advice) bool { return strings.Contains(a.Text, "PTL0461") }); got != want {
			t.Errorf("%s: %+v", spec, advice)
		}
	}
}
