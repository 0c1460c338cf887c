package index

import (
	"iter"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// advisedAnew iterates over the objects about which the advice of the registries may differ
// between two facts.
func advisedAnew(from, to verdict.Facts) iter.Seq[config.Key] {
	advisor, ok := to.Registries.(discovery.Advisor)
	if !ok {
		return func(func(config.Key) bool) {}
	}
	return advisor.AdvisedAnew(from.Registries)
}

// kinds are the kinds whose schemas may warn.
var kinds = schema.Pilot()

// schemaWarnings returns the warnings of an object's schema: fields that have no effect.
func schemaWarnings(object *config.Config) []verdict.Verdict {
	k := kinds.Kind(object.GroupVersionKind)
	if k == nil {
		return nil
	}
	warnings, _ := k.Validate(object) // what is stored is valid
	out := make([]verdict.Verdict, len(warnings))
	for i, w := range warnings {
		out[i] = verdict.Verdict{Code: verdict.Code(w.Code), Field: w.Field, Message: w.Message, Alone: true}
	}
	return out
}

// addAdvice adds the registries' advice about the object.
func addAdvice(j *verdict.Judge, object *config.Config) {
	advisor, ok := j.Facts().Registries.(discovery.Advisor)
	if !ok {
		return
	}
	for _, a := range advisor.Advise(object.Key()) {
		j.Add(verdict.Verdict{Code: verdict.Code(a.Code), Field: a.Field, Message: a.Message, Remedy: a.Remedy, Other: a.Other})
	}
}
