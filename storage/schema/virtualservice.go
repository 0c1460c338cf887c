package schema

import (
	networking "istio.io/api/networking/v1alpha3"
)

func virtualService() *Schema {
	return definition[*networking.VirtualService]{
		kind: VirtualService, plural: "virtualservices", shortName: "vs",
		newSpec: func() *networking.VirtualService { return &networking.VirtualService{} },
		served:  virtualServiceServed(),
		check:   checkVirtualService,
	}.schema()
}

func virtualServiceServed() fields { return nil }

func checkVirtualService(checker, *networking.VirtualService) {}
