package serve

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/aggregate"
	"github.com/portolan-mesh/portolan/cache/beside"
	"github.com/portolan-mesh/portolan/cache/file"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// storeSource is the name of the store among the sources of configuration, and storeKind its kind.
const storeSource, storeKind = "store", "etcd"

// SourcesPath is the path, in the config API, of the sources of configuration.
const SourcesPath = "/apis/portolan.io/v1/sources"

// SourceList is the answer of SourcesPath: the sources in the order of their priority, then
// the endpoint files, and the services and the secrets of clusters.
type SourceList struct {
	metav1.TypeMeta `json:",inline"`

	Items []SourceStatus `json:"items"`
}

// SourceStatus describes the state of a source of configuration.
type SourceStatus struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Where is the path of the directory or file, the address of another control plane or of
	// the API server of a cluster, or a text by which people recognize an etcd.
	Where string `json:"where"`
	// Writable is true if the config API writes to this source.
	Writable bool `json:"writable"`
	// Objects counts the objects by kind. Shadowed counts those without effect, because a
	// source with higher priority has their keys.
	Objects  map[string]int `json:"objects"`
	Shadowed int            `json:"shadowed"`
	// Endpoints is only set for an endpoint file and for the services of a cluster, which are no
	// objects.
	Endpoints *EndpointsStatus `json:"endpoints,omitempty"`
	// Changed is when this server last saw the objects change.
	Changed *time.Time `json:"changed,omitempty"`
	// LagSeconds is how old the served content may be, if that is known.
	LagSeconds *float64 `json:"lagSeconds,omitempty"`
	// Problem says what is wrong with the whole source. Where it only sums that up, Details says
	// it all, such as each right that the account of a cluster lacks. Faults says what is wrong with
	// single objects and files. Refused counts those Faults for which something is not served in the
	// form that the source has; the others are warnings.
	Problem string   `json:"problem,omitempty"`
	Details []string `json:"details,omitempty"`
	Faults  []string `json:"faults,omitempty"`
	Refused int      `json:"refused,omitempty"`
	// Differs lists servers of the store whose source has other objects. Absent is true if
	// another server has this source, but this one does not.
	Differs []string `json:"differs,omitempty"`
	Absent  bool     `json:"absent,omitempty"`
}

// ObjectCount returns the number of objects of all kinds.
func (s *SourceStatus) ObjectCount() (objects int) {
	for _, n := range s.Objects {
		objects += n
	}
	return objects
}

// OfMesh says whether the source has objects of the mesh, rather than services or secrets alone.
func (s *SourceStatus) OfMesh() bool { return s.Endpoints == nil && s.Kind != clusterSecretsKind }

// setProblem takes what is wrong with the whole source, nil for nothing.
func (s *SourceStatus) setProblem(err error) {
	if err != nil {
		s.Problem, s.Details = err.Error(), cluster.Details(err)
	}
}

// addProblems adds problems of objects to the faults.
func (s *SourceStatus) addProblems(all []cache.Problem) {
	for _, p := range all {
		s.addFault(faultOf(p), !p.Warning)
	}
}

// addFault adds a fault. refused says that something is not served in the form that the source has.
func (s *SourceStatus) addFault(text string, refused bool) {
	s.Faults = append(s.Faults, text)
	if refused {
		s.Refused++
	}
}

// EndpointsStatus counts the services of a source, and their endpoints.
type EndpointsStatus struct {
	Services int `json:"services"`
	Targets  int `json:"targets"`
}

// configCache is the cache of all configuration, from which everything is served.
type configCache interface {
	cache.ConfigStoreCache
	statuses.Base
}

// problemsIn returns the problems of the objects in a source, nil for a source that reports
// none.
func problemsIn(source aggregate.Follower) []cache.Problem {
	if of, ok := source.(interface{ Problems() []cache.Problem }); ok {
		return of.Problems()
	}
	return nil
}

// isKept says whether an earlier form of an object is served instead of the present one.
func isKept(p cache.Problem) bool { return p.Serving && !p.Warning }

// addConfigs makes the cache of all configuration: the mirror of the store, or an
// aggregate of it, the directories, the other control planes and the clusters.
func (s *server) addConfigs() error {
	own := mirror.Options{
		Worker: s.worker, Schemas: s.configs.Schemas(), Store: s.configs, Domain: s.o.Mesh.Domain, Log: s.log(loglevel.Cache),
		Registerer: s.metrics, HistoryMemory: s.o.HistoryMemory, Unasked: s.o.Etcd != nil && s.o.Founding == member.FoundNever,
	}
	s.mirror = mirror.New(s.store.client, own)
	if len(s.o.ConfigDirs)+len(s.o.ConfigPeers)+len(s.o.ConfigKube) == 0 {
		s.source = s.mirror
		return s.mirror.RegisterSnapshotHandler(func(_, to *cache.Snapshot) { s.selectors.take(to) })
	}
	store := aggregate.Source{Name: storeSource, Cache: s.mirror, Kind: storeKind, Where: s.storePlace()}
	sources := s.directories()
	if s.o.ConfigDirsFirst {
		sources = append(sources, store)
	} else {
		sources = append([]aggregate.Source{store}, sources...)
	}
	peers, err := s.peers()
	if err != nil {
		return err
	}
	clusters, err := s.kubeSources()
	if err != nil {
		return err
	}
	sources = append(append(sources, peers...), clusters...)
	all, err := aggregate.MakeCache(aggregate.Options{
		Worker: s.worker, Store: s.mirror, Sources: sources, HistoryMemory: s.o.HistoryMemory, Log: s.log(loglevel.Cache),
		Merged: s.selectors.take,
	})
	if err != nil {
		return err
	}
	s.source, s.sources = all, all
	s.checks = append(s.checks, rest.Check{Name: "sources", Degraded: s.sourcesDegraded})
	return s.metrics.Register(all)
}

// storePlace returns a text by which people recognize the store.
func (s *server) storePlace() string {
	if s.o.Embedded != nil {
		return s.o.Embedded.DataDir
	}
	return strings.Join(s.store.client.Endpoints(), ",")
}

// sourcesDegraded returns what is wrong with the sources and their objects, nil if nothing is.
func (s *server) sourcesDegraded() error {
	out := []error{s.sources.Degraded()}
	for _, state := range s.sources.States() {
		of := SourceStatus{Name: state.Name}
		of.addProblems(problemsIn(state.Cache))
		out = append(out, of.refused())
	}
	return errors.Join(out...)
}

// refused says how much of a source is not served as it stands there, nil for nothing.
func (s *SourceStatus) refused() error { return refusedIn(s.Name, s.Refused) }

func refusedIn(source string, n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("source %s: what is not served as it stands there: %d (portolan source describe %[1]s)", source, n)
}

// sourceList describes all sources.
func (s *server) sourceList() SourceList {
	var all []aggregate.Status
	if s.sources != nil {
		all = s.sources.Statuses()
	} else {
		only := aggregate.Status{Name: storeSource, Kind: storeKind, Where: s.storePlace(), Writable: true, Objects: map[string]int{}, Err: s.mirror.Degraded()}
		for object := range s.mirror.Snapshot().Configs().Values() {
			only.Objects[object.Kind]++
		}
		all = []aggregate.Status{only}
	}
	out := SourceList{TypeMeta: storeShape("SourceList"), Items: []SourceStatus{}}
	for i := range all {
		out.Items = append(out.Items, s.sourceStatus(&all[i]))
	}
	out.Items = append(out.Items, s.endpointFiles()...)
	out.Items = append(out.Items, s.clusterSources()...)
	out.Items = append(out.Items, s.secretSources()...)
	out.addDifferences(s.beside.Differences())
	return out
}

func (l *SourceList) addDifferences(all []beside.Difference) {
	for _, d := range all {
		at := slices.IndexFunc(l.Items, func(s SourceStatus) bool { return s.Name == d.Source && s.Absent == d.Lacking })
		if at < 0 {
			at = len(l.Items)
			l.Items = append(l.Items, SourceStatus{Name: d.Source, Kind: "absent", Objects: map[string]int{}, Absent: true})
		}
		l.Items[at].Differs = append(l.Items[at].Differs, d.Message)
	}
}

func (s *server) sourceStatus(source *aggregate.Status) SourceStatus {
	out := SourceStatus{
		Name: source.Name, Kind: source.Kind, Where: source.Where, Writable: source.Writable, Objects: source.Objects, Shadowed: source.Shadowed,
	}
	if !source.Changed.IsZero() {
		at := source.Changed.UTC().Truncate(time.Second)
		out.Changed = &at
	}
	out.setProblem(source.Err)
	if source.Writable {
		lag := s.mirror.Staleness().Seconds()
		out.LagSeconds = &lag
	}
	out.addProblems(problemsIn(source.Cache))
	return out
}

// faultOf returns a problem of an object as a fault of its source: how bad it is, since when, and
// what is served.
func faultOf(p cache.Problem) string {
	text := severityOf(p)
	if !p.Since.IsZero() {
		text += " since " + p.Since.UTC().Format(time.RFC3339)
	}
	text += ": " + p.String()
	if isKept(p) {
		text += " (what it held before is served)"
	}
	return text
}

// severityOf says how bad a problem of an object is: what is served as it stands is a warning.
func severityOf(p cache.Problem) string {
	if p.Warning {
		return verdict.Warning.String()
	}
	return verdict.Error.String()
}

// besideStore returns the functions that refuse writes of objects from other sources, and say
// where those objects are. Both are nil if the store is the only source.
func (s *server) besideStore() (permit func(storage.Op) error, place func(config.Key) string) {
	if s.sources == nil {
		return nil, nil
	}
	return s.sources.Permit, s.sources.Place
}

// directories returns the sources for the directories, each named by its path.
func (s *server) directories() []aggregate.Source {
	var out []aggregate.Source
	for _, dir := range s.o.ConfigDirs {
		c := file.New(file.Options{
			Dir: dir, Worker: cache.NewWorker(), Schemas: s.configs.Schemas(), Domain: s.o.Mesh.Domain,
			HistoryMemory: s.o.HistoryMemory, Log: s.log(loglevel.Cache), Registerer: s.metrics,
		})
		out = append(out, aggregate.Source{Name: dir, Cache: c, Kind: "directory", Where: absolute(dir), Place: func(key config.Key) string {
			if place, ok := c.FileOf(key); ok {
				return place.String()
			}
			return ""
		}})
	}
	return out
}
