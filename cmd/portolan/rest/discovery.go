package rest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portolan-mesh/portolan/storage/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
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

// groups returns the groups of the schemas, in their order, and always our own. The core
// group is not among them: /api describes it.
func (s *Server) groups() []metav1.APIGroup {
	names := []string{""}
	var groups []metav1.APIGroup
	for _, kind := range s.schemas.All() {
		if !slices.Contains(names, kind.Group) {
			names = append(names, kind.Group)
			groups = append(groups, apiGroup(kind.Group, s.versions(kind.Group)))
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
	for _, kind := range s.schemas.All() {
		for _, v := range kind.Versions {
			if kind.Group == group && !slices.Contains(versions, v) {
				versions = append(versions, v)
			}
		}
	}
	slices.SortStableFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	return versions
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
	for _, kind := range s.schemas.All() {
		if kind.Group != group || !kind.Serves(v) {
			continue
		}
		out = append(out, metav1.APIResource{
			Name: kind.Plural, SingularName: kind.Singular, ShortNames: kind.ShortNames, Kind: kind.Kind,
			Namespaced: !kind.ClusterScoped, Categories: categories(kind),
			Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
		})
		if s.hasStatus(kind) {
			out = append(out, metav1.APIResource{
				Name: kind.Plural + "/" + statusPath, Kind: kind.Kind, Namespaced: !kind.ClusterScoped, Verbs: metav1.Verbs{"get", "update"},
			})
		}
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
func categories(kind *schema.Schema) []string {
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

// namespace answers that a namespace exists if its name is valid: kubectl asks for the
// namespace before it reports that an object in it does not exist. TestKubectl in
// integration shows it.
func (s *Server) namespace(c *call) (any, error) {
	name := c.r.PathValue("namespace")
	if len(validation.IsDNS1123Label(name)) > 0 {
		return nil, apierrors.NewNotFound(runtimeschema.GroupResource{Resource: "namespaces"}, name)
	}
	return namespaceNamed(name), nil
}

// namespaceObject is a namespace as in Kubernetes.
type namespaceObject struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        map[string]string `json:"metadata"`
	Status          map[string]string `json:"status"`
}

func namespaceNamed(name string) namespaceObject {
	return namespaceObject{metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}, map[string]string{"name": name}, map[string]string{"phase": "Active"}}
}

// namespaces lists the namespaces that have objects: shells use it to complete -n.
func (s *Server) namespaces(c *call) (any, error) {
	snapshot, err := s.atLeast(c.r.Context(), 0)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for object := range snapshot.Configs().Values() {
		if object.Namespace != "" {
			names[object.Namespace] = true
		}
	}
	items := []namespaceObject{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		items = append(items, namespaceNamed(name))
	}
	return struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []namespaceObject `json:"items"`
	}{metav1.TypeMeta{Kind: "NamespaceList", APIVersion: "v1"}, metav1.ListMeta{ResourceVersion: snapshot.Version()}, items}, nil
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
