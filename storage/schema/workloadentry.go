package schema

import (
	networking "istio.io/api/networking/v1alpha3"
)

func workloadEntry() *Schema {
	return definition[*networking.WorkloadEntry]{
		kind: WorkloadEntry, plural: "workloadentries", shortName: "we",
		newSpec: func() *networking.WorkloadEntry { return &networking.WorkloadEntry{} },
		served:  workloadEntryServed(),
		check:   checkWorkloadEntry,
	}.schema()
}

func workloadEntryServed() fields { return nil }

func checkWorkloadEntry(checker, *networking.WorkloadEntry) {}
