package rest

import (
	"cmp"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// document serves GET of a path with a value.
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

func (s *Server) coreVersions(*call) (any, error) {
	return metav1.APIVersions{
		TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
		Versions:                   append([]string{}, s.versions("")...),
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
	return nil, refusal.NotFound(fmt.Sprintf("no API group %q: /apis lists what there is", name))
}

// groups returns the groups of the schemas, in their order, and always our own. The core
// group is not among them: /api describes it.
func (s *Server) groups() []metav1.APIGroup {
	names := []string{""}
	var groups []metav1.APIGroup
	for _, kind := range s.kinds() {
		for _, version := range kind.APIVersions() {
			if group := groupOf(version); !slices.Contains(names, group) {
				names = append(names, group)
				groups = append(groups, apiGroup(group, s.versions(group)))
			}
		}
	}
	if slices.Contains(names, batch.Group) {
		return groups
	}
	return append(groups, apiGroup(batch.Group, []string{batch.Version}))
}

// versions returns the API versions of a group, the preferred one first.
func (s *Server) versions(group string) []string {
	var versions []string
	for _, kind := range s.kinds() {
		for _, apiVersion := range kind.APIVersions() {
			if v := path.Base(apiVersion); groupOf(apiVersion) == group && !slices.Contains(versions, v) {
				versions = append(versions, v)
			}
		}
	}
	slices.SortStableFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	return versions
}

// groupOf returns the group of an apiVersion, empty for the core group.
func groupOf(apiVersion string) string {
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		return ""
	}
	return group
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
		GroupVersion: config.GroupVersionKind{Group: group, Version: v}.APIVersion(),
	}
	for _, kind := range s.kinds() {
		if !slices.Contains(kind.APIVersions(), list.GroupVersion) {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: kind.Plural, SingularName: kind.Singular, ShortNames: kind.ShortNames, Kind: kind.Kind,
			Namespaced: !kind.ClusterScoped, Categories: s.categories(kind),
			Verbs: metav1.Verbs{"create", "delete", "get", "list", "update", "watch"},
		})
		if s.hasStatus(kind) {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: kind.Plural + "/" + statusPath, Kind: kind.Kind, Namespaced: !kind.ClusterScoped, Verbs: metav1.Verbs{"get", "update"},
			})
		}
	}
	if group == batch.Group && v == batch.Version {
		list.APIResources = append(list.APIResources,
			metav1.APIResource{Name: "batches", SingularName: "batch", Kind: batch.Kind, Verbs: metav1.Verbs{"create"}},
			metav1.APIResource{Name: record.Resource, SingularName: "record", Kind: record.Kind, Verbs: metav1.Verbs{"list"}})
	}
	if list.APIResources == nil {
		return nil, refusal.NotFound(fmt.Sprintf("no API version %s: %s lists what there is", list.GroupVersion, rootOf(group)))
	}
	return list, nil
}

// categories returns the names by which clients ask for several kinds at once.
func (s *Server) categories(kind *schema.Schema) []string {
	if s.schemas.Kind(kind.GroupVersionKind) == nil {
		return nil // it is not of the mesh
	}
	return []string{"portolan", "istio-io"}
}

// rootOf returns the path of the versions of a group.
func rootOf(group string) string {
	if group == "" {
		return "/api"
	}
	return "/apis"
}

// versionInfo describes the version of this program as Kubernetes does. Clients of
// Kubernetes need a semantic version; a version of another form becomes its build.
func (s *Server) versionInfo(*call) (any, error) {
	semantic, err := utilversion.ParseSemantic(s.version)
	text := s.version
	if err != nil {
		text = "v0.0.0+" + notOfBuild.ReplaceAllString(cmp.Or(s.version, "unknown"), "-")
		semantic = utilversion.MajorMinor(0, 0)
	}
	return version.Info{
		Major: fmt.Sprint(semantic.Major()), Minor: fmt.Sprint(semantic.Minor()), GitVersion: text,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}, nil
}

// notOfBuild matches a character that is not allowed in the build of a semantic version.
var notOfBuild = regexp.MustCompile(`[^0-9A-Za-z.-]`)
