package serve

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/filesd"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// SourceObjectsPath is the path, in the config API, of the objects of one source of
// configuration (the parameter name).
const SourceObjectsPath = SourcesPath + "/objects"

// SourceObjects is the answer of SourceObjectsPath: the objects by kind, namespace and name. A
// document of which nothing is served appears only in the Faults of a SourceStatus.
type SourceObjects struct {
	Items []SourceObject `json:"items"`
}

// SourceObject is one object of a source.
type SourceObject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Place is where the object is in the source.
	Place string `json:"place,omitempty"`
	// ShadowedBy is the source whose object of this key is used instead.
	ShadowedBy string `json:"shadowedBy,omitempty"`
	// Faults say what is wrong with it. Refused counts those for which it is not served in the form that
	// the source has; the others are warnings.
	Faults  []string `json:"faults,omitempty"`
	Refused int      `json:"refused,omitempty"`
	// Issues are the codes of findings about the object, if it is used.
	Issues []string `json:"issues,omitempty"`
}

// endpointsKind is the Kind of endpoint files among the sources.
const endpointsKind = "endpoints file"

// serveSourceObjects answers SourceObjectsPath.
func (s *server) serveSourceObjects(r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	out := SourceObjects{Items: []SourceObject{}}
	objects, known := s.objectsOf(name)
	if !known {
		return nil, refusal.BadRequest("say of which source: " + SourceObjectsPath + "?name=NAME, where NAME is one of " + SourcesPath)
	}
	problems, verdicts := s.problemsOf(name), s.verdicts.Index()
	for i := range objects {
		o := &objects[i]
		of := o.Key().String()
		item := SourceObject{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Place: o.Place, ShadowedBy: o.By}
		for _, p := range problems[of] {
			item.Faults = append(item.Faults, p.Message)
			if !p.Warning {
				item.Refused++
			}
		}
		if o.By == "" {
			for _, v := range verdicts.Of(o.Key()) {
				item.Issues = append(item.Issues, string(v.Code))
			}
			slices.Sort(item.Issues)
			item.Issues = slices.Compact(item.Issues)
		}
		out.Items = append(out.Items, item)
	}
	return out, nil
}

// objectsOf returns the objects of a source of configuration, or false if there is no such
// source. An endpoint file, and the services of a cluster, are sources without objects.
func (s *server) objectsOf(name string) (objects []aggregate.Object, known bool) {
	if s.sources != nil {
		if objects, known = s.sources.Objects(name); known {
			return objects, true
		}
	} else if name == storeSource {
		for object := range s.mirror.Snapshot().Configs().Values() {
			objects = append(objects, aggregate.Object{Config: object})
		}
		return objects, true
	}
	if objects, known = s.clusterSecretsOf(name); known {
		return objects, true
	}
	for _, of := range slices.Concat(s.endpointFiles(), s.clusterSources()) {
		known = known || of.Name == name
	}
	return nil, known
}

// problemsOf returns the problems of the objects of a source, by Key.String.
func (s *server) problemsOf(name string) map[string][]cache.Problem {
	out := map[string][]cache.Problem{}
	s.clusterSecretProblems(name, out)
	if s.sources == nil {
		return out
	}
	for _, of := range s.sources.States() {
		if of.Name != name {
			continue
		}
		for _, p := range problemsIn(of.Cache) {
			if p.Object != "" {
				out[p.Object] = append(out[p.Object], p)
			}
		}
	}
	return out
}

// keptFor returns why the server still serves an earlier form of an object than its source
// has.
func (s *server) keptFor(object *config.Config) (out []string) {
	for _, p := range s.problemsOf(object.Source)[object.Key().String()] {
		if isKept(p) {
			out = append(out, p.Message)
		}
	}
	return out
}

func (s *server) endpointFiles() (out []SourceStatus) {
	for _, registry := range s.registry.Registries() {
		files, ok := registry.(*filesd.Registry)
		if !ok {
			continue
		}
		status := files.Status()
		for i, of := range files.SourceStatuses() {
			one := SourceStatus{
				Name: of.Name, Kind: endpointsKind, Where: absolute(of.Name), Objects: map[string]int{}, Problem: of.Problem,
				Endpoints: &EndpointsStatus{Services: of.Services, Targets: status.Files[i].Targets},
			}
			if of.State == discovery.SourceSyncing && one.Problem == "" {
				one.Problem = "it is not read yet"
			}
			for _, flaw := range status.Flaws {
				if flaw.File == of.Name {
					one.addFault(flaw.String(), flaw.LeftOut)
				}
			}
			out = append(out, one)
		}
	}
	return out
}

// clusterServicesKind is the Kind of the services of clusters among the sources, and
// clusterServices begins their names.
const (
	clusterServicesKind = "cluster services"
	clusterServices     = "services/"
)

// clusterSources returns the services of clusters as sources, which have no objects.
func (s *server) clusterSources() (out []SourceStatus) {
	for _, status := range s.kubernetes.Status() {
		source := SourceStatus{
			Name: clusterServices + status.Cluster, Kind: clusterServicesKind, Where: status.Server, Objects: map[string]int{}, Problem: status.Degraded, Details: status.Details,
			Endpoints: &EndpointsStatus{Services: status.Services, Targets: status.Endpoints},
		}
		if status.Secret != "" {
			source.Where = strings.TrimSpace(source.Where + " (" + status.Secret + ")")
		}
		for _, flaw := range status.Flaws {
			source.addFault(flaw.Object+": "+flaw.Reason, flaw.Unread)
		}
		out = append(out, source)
	}
	return out
}

// placesOf returns where endpoint files list a service; none for a service of another registry.
func (s *server) placesOf(service *discovery.Service) (out []string) {
	for _, registry := range s.registry.Registries() {
		if of, ok := registry.(*filesd.Registry); ok && service.Attributes.Provider == discovery.File {
			out = append(out, of.Places(service.Hostname, service.Attributes.Namespace)...)
		}
	}
	return out
}

// clustersOf returns the cluster of each service of a row; "" for a service of another registry, and
// for one that its cluster has changed since. No cluster has two services of one row.
func (s *server) clustersOf(row []*discovery.Service) []string {
	registries := s.kubernetes.Registries()
	out := make([]string, len(row))
	for i, service := range row {
		if service.Attributes.Provider != discovery.Kubernetes {
			continue
		}
		at := slices.IndexFunc(registries, func(of *kube.Registry) bool {
			return !slices.Contains(out, of.Cluster()) && of.GetService(service.Hostname).Equal(service)
		})
		if at >= 0 {
			out[i] = registries[at].Cluster()
		}
	}
	return out
}

// absolute returns a path that does not depend on the working directory.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}
