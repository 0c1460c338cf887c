package security

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/generate/envoyfilter"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// EnvoyFilter judges an EnvoyFilter by itself: whether Envoy takes the values of its patches, and
// what they open. The config API refuses faulty values; a stored object may have some from a former
// server.
func EnvoyFilter(j *verdict.Judge, object *config.Config) {
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
