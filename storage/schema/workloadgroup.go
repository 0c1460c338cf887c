package schema

import (
	networking "istio.io/api/networking/v1alpha3"
)

func workloadGroup() *Schema {
	return definition[*networking.WorkloadGroup]{
		kind: WorkloadGroup, plural: "workloadgroups", shortName: "wg",
		newSpec: func() *networking.WorkloadGroup { return &networking.WorkloadGroup{} },
		stored:  true,
		check:   checkWorkloadGroup,
	}.schema()
}

func checkWorkloadGroup(checker, *networking.WorkloadGroup) {}
