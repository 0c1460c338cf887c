package rest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A cluster learns kinds by objects of this kind. This server knows its kinds without, and has no
// such objects. But clients ask for them: Terraform's provider plans nothing where the kind is
// unknown.
const (
	definitionsGroup, definitionsVersion = "apiextensions.k8s.io", "v1"
	definitionKind                       = "CustomResourceDefinition"
	definitionsResource                  = "customresourcedefinitions"
	definitionsPath                      = "/apis/" + definitionsGroup + "/" + definitionsVersion + "/" + definitionsResource
)

// definitions describes the kind of definitions: they can be listed.
func definitions() metav1.APIResource {
	return metav1.APIResource{
		Name: definitionsResource, SingularName: "customresourcedefinition", ShortNames: []string{"crd", "crds"}, Kind: definitionKind, Verbs: metav1.Verbs{"list"},
	}
}

// noDefinitions is the list of all definitions.
func (s *Server) noDefinitions(*call) (any, error) {
	return metav1.List{
		TypeMeta: metav1.TypeMeta{Kind: definitionKind + "List", APIVersion: definitionsGroup + "/" + definitionsVersion},
		Items:    []runtime.RawExtension{},
	}, nil
}
