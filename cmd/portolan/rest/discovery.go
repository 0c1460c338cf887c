package rest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"regexp"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
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
	return s.discovery(value, nil)
}

// discovery is document for a path that answers with another value if the client asks for
// aggregated discovery.
func (s *Server) discovery(value, aggregated func(*call) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, func(c *call) error {
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				w.Header().Set("Allow", "GET")
				return methodNotAllowed(c)
			}
			if err := s.admit(c); err != nil {
				return err
			}
			got, err := negotiate(r, []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}, func(media string, as runtimeschema.GroupVersionKind) bool {
				return aggregated != nil && isAggregated(as) && media == runtime.ContentTypeJSON
			})
			if err != nil {
				return err
			}
			c.form.media = got.media
			if c.form.pretty, err = isPretty(c, got); err != nil {
				return err
			}
			of, media := value, got.media
			if isAggregated(got.as) {
				of, media = aggregated, aggregatedMedia(got.media)
			}
			answer, err := of(c)
			if err != nil {
				return err
			}
			text, err := json.Marshal(answer)
			if err != nil {
				return err
			}
			body, err := c.form.body(text)
			if err != nil {
				return err
			}
			w.Header().Set("Vary", "Accept")
			writeBody(c.w, http.StatusOK, media, body)
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

// groups returns the groups of the schemas, in their order, and always that of definitions and
// our own. The core
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
	groups = append(groups, apiGroup(definitionsGroup, []string{definitionsVersion}))
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
		APIResources: s.resources(group, v),
	}
	if list.APIResources == nil {
		return nil, refusal.NotFound(fmt.Sprintf("no API version %s: %s lists what there is", list.GroupVersion, rootOf(group)))
	}
	return list, nil
}

// resources returns the resources of an API version, each before its subresources.
func (s *Server) resources(group, v string) (out []metav1.APIResource) {
	for _, kind := range s.kinds() {
		if !slices.Contains(kind.APIVersions(), config.GroupVersionKind{Group: group, Version: v}.APIVersion()) {
			continue
		}
		out = append(out, metav1.APIResource{
			Name: kind.Plural, SingularName: kind.Singular, ShortNames: kind.ShortNames, Kind: kind.Kind,
			Namespaced: !kind.ClusterScoped, Categories: s.categories(kind),
			Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
		})
		if s.hasStatus(kind) {
			out = append(out, metav1.APIResource{
				Name: kind.Plural + "/" + statusPath, Kind: kind.Kind, Namespaced: !kind.ClusterScoped, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
	}
	if group == definitionsGroup && v == definitionsVersion {
		out = append(out, definitions())
	}
	if group == batch.Group && v == batch.Version {
		out = append(out,
			metav1.APIResource{Name: "batches", SingularName: "batch", Kind: batch.Kind, Verbs: metav1.Verbs{"create"}},
			metav1.APIResource{Name: record.Resource, SingularName: "record", Kind: record.Kind, Verbs: metav1.Verbs{"list"}})
	}
	return out
}

// categories returns the categories of a kind: kubectl get all shows those in all. Secrets,
// and objects that say who may do what, are not among them, as in Kubernetes.
func (s *Server) categories(kind *schema.Schema) []string {
	if s.schemas.Kind(kind.GroupVersionKind) == nil {
		return nil // it is not of the mesh
	}
	out := []string{"portolan", "istio-io"}
	if strings.HasSuffix(kind.Group, ".istio.io") {
		out = append(out, strings.ReplaceAll(kind.Group, ".", "-"))
	}
	if !kind.Internal {
		out = append(out, "all")
	}
	return out
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
	info := version.Info{
		Major: fmt.Sprint(semantic.Major()), Minor: fmt.Sprint(semantic.Minor()), GitVersion: text,
		GoVersion: goruntime.Version(), Compiler: goruntime.Compiler, Platform: goruntime.GOOS + "/" + goruntime.GOARCH,
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range build.Settings {
			switch setting.Key {
			case "vcs.revision":
				info.GitCommit = setting.Value
			case "vcs.time":
				info.BuildDate = setting.Value
			case "vcs.modified":
				info.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[setting.Value]
			}
		}
	}
	return info, nil
}

// notOfBuild matches a character that is not allowed in the build of a semantic version.
var notOfBuild = regexp.MustCompile(`[^0-9A-Za-z.-]`)
