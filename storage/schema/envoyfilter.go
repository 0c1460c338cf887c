package schema

import (
	networking "istio.io/api/networking/v1alpha3"
)

func envoyFilter() *Schema {
	return definition[*networking.EnvoyFilter]{
		kind: EnvoyFilter, plural: "envoyfilters", shortName: "ef",
		newSpec: func() *networking.EnvoyFilter { return &networking.EnvoyFilter{} },
		stored:  true,
		check:   checkEnvoyFilter,
	}.schema()
}

func checkEnvoyFilter(checker, *networking.EnvoyFilter) {}
