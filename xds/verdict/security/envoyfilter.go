package security

import (
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/generate/envoyfilter"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// EnvoyFilter judges an EnvoyFilter: whether it selects a proxy, whether Envoy takes the values of its
// patches, and what they open. gRPC clients have no patches. The config API refuses faulty values; a
// stored object may have some from a former server.
func EnvoyFilter(j *verdict.Judge, object *config.Config) {
	s := selectionOf(j, object)
	s.selected = slices.DeleteFunc(s.selected, func(c chosen) bool { return c.Type == discovery.Proxyless })
	s.unused()
	faults, odd := envoyfilter.Check(object)
	for _, f := range faults {
		j.Add(verdict.Verdict{Code: verdict.PatchFaulty, Field: f.Field, Message: f.Message + ": the patch has no effect", Remedy: "mend the value"})
	}
	for _, f := range odd {
		j.Add(verdict.Verdict{Code: verdict.PatchOdd, Field: f.Field, Message: f.Message, Remedy: "write it as Envoy's documentation has it"})
	}
	for _, f := range envoyfilter.Weakens(object) {
		j.Add(verdict.Verdict{
			Code: verdict.PatchOpens, Field: f.Field, Message: f.Message + ": its proxies may let in what policies would refuse",
			Remedy: "leave the patch out, unless it is meant to open something",
		})
	}
}

// SelectsConnected says whether an EnvoyFilter selects an Envoy that is connected.
func SelectsConnected(j *verdict.Judge, object *config.Config) bool {
	s := selectionIn(j, object, verdict.ConnectedRow)
	return len(s.selected) > 0
}
