package maintenance

import (
	"context"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
)

// StatusPath answers a GET with a Status.
const StatusPath = Path + "/status"

// The kinds of store.
const (
	Embedded = "embedded" // the server runs and maintains it
	External = "external" // an etcd that somebody else runs
)

// A Status is the state of a store, as one server sees it.
type Status struct {
	metav1.TypeMeta `json:",inline"`
	// Server describes the server that answered.
	Server ServerStatus `json:"server"`
	// Store is the state of etcd; nil if it does not answer.
	Store *StoreStatus `json:"store,omitempty"`
	// Cache is the server's cache, which answers reads and feeds proxies.
	Cache CacheStatus `json:"cache"`
	// Registries are the sources of services.
	Registries []RegistryStatus `json:"registries,omitempty"`
	// Sources are those of configuration, but the store, and the secrets of clusters.
	Sources []SourceStatus `json:"sources,omitempty"`
	// Jobs are done by one of all servers each, its leader.
	Jobs []JobStatus `json:"jobs,omitempty"`
	// Quarantined is how many objects in the store cannot be served.
	Quarantined int `json:"quarantined"`
	// Backup is the last automatic backup of the server; nil if it makes none.
	Backup *BackupStatus `json:"backup,omitempty"`
	// Certificates says when the certificates expire by which the members of the store
	// verify each other; nil if they have none, or if others maintain the store.
	Certificates *CertificatesStatus `json:"certificates,omitempty"`
	// Problems need an operator's attention; there are none if all is well.
	Problems []string `json:"problems,omitempty"`
}

// ServerStatus describes one server.
type ServerStatus struct {
	Version string `json:"version"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	// Store is Embedded or External.
	Store   string `json:"store"`
	DataDir string `json:"dataDir,omitempty"`
}

// StoreStatus describes an etcd cluster. The sizes are from the member that uses most of
// its quota.
type StoreStatus struct {
	// Cluster is the id of the etcd cluster in hexadecimal, Instance the id that Portolan
	// gave the store.
	Cluster  string `json:"cluster"`
	Instance string `json:"instance,omitempty"`
	Revision int64  `json:"revision"`
	// Compacted is the revision below which nothing can be read, 0 if the server does not
	// know it.
	Compacted    int64         `json:"compacted,omitempty"`
	DBBytes      int64         `json:"dbBytes"`
	DBInUseBytes int64         `json:"dbInUseBytes"`
	QuotaBytes   int64         `json:"quotaBytes,omitempty"`
	FreeBytes    int64         `json:"freeBytes,omitempty"`
	Alarms       []string      `json:"alarms,omitempty"`
	Members      []StoreMember `json:"members"`
}

// StoreMember describes one member of an etcd cluster.
type StoreMember struct {
	ID      string `json:"id"` // hexadecimal
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Leader  bool   `json:"leader,omitempty"`
	Learner bool   `json:"learner,omitempty"`
	DBBytes int64  `json:"dbBytes,omitempty"`
	// Index is the newest entry of the cluster's log that it has applied.
	Index uint64 `json:"index,omitempty"`
	// Error says why the other fields are empty.
	Error string `json:"error,omitempty"`
}

// CacheStatus is the cache of one server.
type CacheStatus struct {
	Revision int64 `json:"revision"`
	Objects  int   `json:"objects"`
	// StalenessSeconds is how old the cache may be at most.
	StalenessSeconds float64 `json:"stalenessSeconds"`
	// Degraded is why it may be old or incomplete, empty if it is not.
	Degraded string `json:"degraded,omitempty"`
}

// RegistryStatus says how fresh one server's data from a source of services is.
type RegistryStatus struct {
	// Name is the name of the registry. If the registry follows several sources, it names
	// the source too: Consul/dc1.
	Name string `json:"name"`
	// State is syncing, live, lastKnown (the source cannot be read, and its last data is
	// served) or degraded (some of it may be old).
	State string `json:"state"`
	// AsOf is when the served data was last confirmed, unless that is now.
	AsOf     time.Time `json:"asOf,omitzero"`
	Services int       `json:"services"`
	// Problem says what is wrong, empty for nothing.
	Problem string `json:"problem,omitempty"`
}

// SourceStatus is a source of objects.
type SourceStatus struct {
	// Name and Kind are as in portolan source list.
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Objects is how many objects the source has.
	Objects int `json:"objects"`
	// Problem says what is wrong with the whole source, empty for nothing.
	Problem string `json:"problem,omitempty"`
	// Refused is how many of its objects are not served as they stand in the source.
	Refused int `json:"refused,omitempty"`
}

// JobStatus is a job and the server that does it; Leader is empty if none does.
type JobStatus struct {
	Name   string `json:"name"`
	Leader string `json:"leader,omitempty"`
}

// BackupStatus is the last scheduled backup.
type BackupStatus struct {
	Time     time.Time `json:"time,omitzero"`
	File     string    `json:"file,omitempty"`
	Revision int64     `json:"revision,omitempty"`
	// Error is why there is no newer one.
	Error string `json:"error,omitempty"`
}

// CertificatesStatus says when the certificate of the server's member expires, and when
// the first of its trusted authorities does.
type CertificatesStatus struct {
	Member    time.Time `json:"memberEnds"`
	Authority time.Time `json:"authorityEnds"`
}

// Reporter reports the state of a store. It answers within seconds, even if the store
// does not.
type Reporter interface {
	StoreStatus(context.Context) Status
}

func (o Options) status(w http.ResponseWriter, r *http.Request) error {
	if o.Status == nil {
		return unsupported("report on", "ask etcd itself, with etcdctl endpoint status")
	}
	status := o.Status.StoreStatus(r.Context())
	status.TypeMeta = typeMeta("StoreStatus")
	rest.WriteJSON(w, http.StatusOK, status)
	return nil
}
