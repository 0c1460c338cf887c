package schema

import (
	networking "istio.io/api/networking/v1alpha3"
)

func destinationRule() *Schema {
	return definition[*networking.DestinationRule]{
		kind: DestinationRule, plural: "destinationrules", shortName: "dr",
		newSpec: func() *networking.DestinationRule { return &networking.DestinationRule{} },
		served:  destinationRuleServed(),
		check:   checkDestinationRule,
	}.schema()
}

func destinationRuleServed() fields { return nil }

func checkDestinationRule(checker, *networking.DestinationRule) {}
