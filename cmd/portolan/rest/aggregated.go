package rest

import (
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
)

// aggregatedKind is the kind in which clients ask for the resources of all groups at once.
var aggregatedKind = apidiscovery.SchemeGroupVersion.WithKind("APIGroupDiscoveryList")

func aggregatedMedia(media string) string {
	return media + ";g=" + aggregatedKind.Group + ";v=" + aggregatedKind.Version + ";as=" + aggregatedKind.Kind
}

// aggregatedCore describes the core group with its resources, aggregatedGroups all others.
func (s *Server) aggregatedCore(*call) (any, error) {
	if versions := s.versions(""); len(versions) > 0 {
		return aggregated(s.aggregatedGroup("", versions)), nil
	}
	return aggregated(), nil
}

func (s *Server) aggregatedGroups(*call) (any, error) {
	var groups []apidiscovery.APIGroupDiscovery
	for _, group := range s.groups() {
		var versions []string
		for _, v := range group.Versions {
			versions = append(versions, v.Version)
		}
		groups = append(groups, s.aggregatedGroup(group.Name, versions))
	}
	return aggregated(groups...), nil
}

func aggregated(groups ...apidiscovery.APIGroupDiscovery) apidiscovery.APIGroupDiscoveryList {
	return apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: aggregatedKind.Kind, APIVersion: aggregatedKind.GroupVersion().String()},
		Items:    append([]apidiscovery.APIGroupDiscovery{}, groups...),
	}
}

func (s *Server) aggregatedGroup(name string, versions []string) apidiscovery.APIGroupDiscovery {
	out := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, v := range versions {
		one := apidiscovery.APIVersionDiscovery{Version: v, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		for _, r := range s.resources(name, v) {
			kind := &metav1.GroupVersionKind{Group: name, Version: v, Kind: r.Kind}
			if parent, sub, ok := strings.Cut(r.Name, "/"); ok { // follows its parent
				last := &one.Resources[len(one.Resources)-1]
				if last.Resource == parent {
					last.Subresources = append(last.Subresources, apidiscovery.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind, Verbs: r.Verbs})
				}
				continue
			}
			scope := apidiscovery.ScopeCluster
			if r.Namespaced {
				scope = apidiscovery.ScopeNamespace
			}
			one.Resources = append(one.Resources, apidiscovery.APIResourceDiscovery{
				Resource: r.Name, ResponseKind: kind, Scope: scope, SingularResource: r.SingularName,
				Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
			})
		}
		out.Versions = append(out.Versions, one)
	}
	return out
}

// isAggregated says whether a client asks for aggregated discovery.
func isAggregated(as runtimeschema.GroupVersionKind) bool { return as == aggregatedKind }
