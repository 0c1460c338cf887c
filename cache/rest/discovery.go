package rest

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/cache/rest/record"
)

// document serves a path that answers GET with a value.
func (s *Server) document(value func(*call) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, func(c *call) error {
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				w.Header().Set("Allow", "GET")
				return methodNotAllowed(c)
			}
			if err := s.admit(c); err != nil {
				return err
			}
			answer, err := value(c)
			if err != nil {
				return err
			}
			writeJSON(c.w, http.StatusOK, answer)
			return nil
		})
	}
}

// coreVersions says that there is no core group.
func (s *Server) coreVersions(*call) (any, error) {
	return metav1.APIVersions{
		TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
		Versions:                   []string{},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	}, nil
}

func (s *Server) groupList(*call) (any, error) {
	return metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: s.groups()}, nil
}

func (s *Server) group(c *call) (any, error) {
	name := c.r.PathValue("group")
	for _, group := range s.groups() {
		if group.Name == name {
			group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			return group, nil
		}
	}
	return nil, unknownPath(fmt.Sprintf("no API group %q: /apis lists what there is", name))
}

// groups are those of the schemas, in their order, and our own.
func (s *Server) groups() []metav1.APIGroup {
	var names []string
	versions := map[string][]string{}
	for _, kind := range s.schemas.All() {
		if !slices.Contains(names, kind.Group) {
			names = append(names, kind.Group)
		}
		for _, v := range kind.Versions {
			if !slices.Contains(versions[kind.Group], v) {
				versions[kind.Group] = append(versions[kind.Group], v)
			}
		}
	}
	groups := make([]metav1.APIGroup, 0, len(names)+1)
	for _, name := range names {
		slices.SortStableFunc(versions[name], func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
		groups = append(groups, apiGroup(name, versions[name]))
	}
	return append(groups, apiGroup(batch.Group, []string{batch.Version}))
}

// apiGroup describes a group by its versions, the preferred one first.
func apiGroup(name string, versions []string) metav1.APIGroup {
	group := metav1.APIGroup{Name: name}
	for _, v := range versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}

func (s *Server) resourceList(c *call) (any, error) {
	group, v := c.r.PathValue("group"), c.r.PathValue("version")
	list := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: group + "/" + v,
	}
	for _, kind := range s.schemas.All() {
		if kind.Group != group || !kind.Serves(v) {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: kind.Plural, SingularName: kind.Singular, ShortNames: kind.ShortNames, Kind: kind.Kind,
			Namespaced: !kind.ClusterScoped, Categories: []string{"portolan", "istio-io"},
			Verbs: metav1.Verbs{"create", "delete", "get", "list", "update", "watch"},
		})
		if s.hasStatus(kind) {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: kind.Plural + "/" + statusPath, Kind: kind.Kind, Namespaced: !kind.ClusterScoped, Verbs: metav1.Verbs{"get", "update"},
			})
		}
	}
	if group == batch.Group && v == batch.Version {
		list.APIResources = []metav1.APIResource{
			{Name: "batches", SingularName: "batch", Kind: batch.Kind, Verbs: metav1.Verbs{"create"}},
			{Name: record.Resource, SingularName: "record", Kind: record.Kind, Verbs: metav1.Verbs{"list"}},
		}
	}
	if list.APIResources == nil {
		return nil, unknownPath(fmt.Sprintf("no API version %s/%s: /apis lists what there is", group, v))
	}
	return list, nil
}

// versionInfo is that of this program, in the shape of Kubernetes'.
func (s *Server) versionInfo(*call) (any, error) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(s.version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return version.Info{
		Major: major, Minor: minor, GitVersion: s.version,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}, nil
}
