package schema

import (
	networking "istio.io/api/networking/v1alpha3"
)

func sidecar() *Schema {
	return definition[*networking.Sidecar]{
		kind: Sidecar, plural: "sidecars", shortName: "sc",
		newSpec: func() *networking.Sidecar { return &networking.Sidecar{} },
		served:  sidecarServed(),
		check:   checkSidecar,
	}.schema()
}

func sidecarServed() fields { return nil }

func checkSidecar(checker, *networking.Sidecar) {}
