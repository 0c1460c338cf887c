package serve

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/mcp"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/discovery/filesd"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// Options configure a server. One of Embedded and Etcd is required; all other zero values are
// valid.
type Options struct {
	// Version is the announced version of the binary, such as v1.2.3.
	Version string

	// APIAddress and XDSAddress are HOST:PORT of the config API and of xDS. Port 0 picks a
	// free port; empty means a free port of 127.0.0.1.
	APIAddress, XDSAddress string
	// APISocket is the path of a unix socket on which the config API also listens, only for
	// this user. If it is empty, an embedded store has api.sock in its directory where that is
	// possible, and another store has none.
	APISocket string

	// XDSSocket is the path of a unix socket on which proxies of this user and of root connect;
	// empty means none.
	XDSSocket string

	// TLS configures how the server serves other machines.
	TLS TLS
	// MaxIdentityStreams is how many streams of xDS the clients of one identity may have; 0
	// means admission.DefaultMaxIdentityStreams.
	MaxIdentityStreams int

	// AnonymousLoopback treats whoever calls the config API from this machine as an
	// administrator, even when there are users.
	AnonymousLoopback bool

	// TrustLoopbackProxies gives the proxies of this machine secrets, and believes the labels
	// of its gateways, without proof, even when there are users.
	TrustLoopbackProxies bool

	// Mesh is the mesh configuration; nil means Istio's defaults.
	Mesh *meshconfig.Config

	// Embedded is the etcd that the server runs itself, and Etcd one that somebody else
	// runs. Exactly one of them is set.
	Embedded *Embedded
	// Founding says whether a new store may begin, embedded or in an etcd cluster.
	Founding member.Founding
	Etcd     *Etcd
	// Backup is the schedule for snapshots of the store; nil means none. The server sets its
	// Schemas.
	Backup *backup.Schedule
	// BackupEnvelope wraps the server's keys for such a backup.
	BackupEnvelope func(escrow.Keys) (*escrow.Envelope, error)
	// Addresses are the ranges from which hosts of ServiceEntries get addresses; the zero
	// value means address.DefaultRanges.
	Addresses address.Ranges

	// ConfigDirs are directories of configuration that the server follows beside the store.
	// For an object in several sources the first counts. The store comes before the
	// directories, or after them with ConfigDirsFirst.
	ConfigDirs      []string
	ConfigDirsFirst bool
	// ConfigPeers are other control planes whose objects the server follows, after the store
	// and the directories. The server sets Worker, Schemas, Domain, NodeName,
	// HistoryMemory, Log and Registerer.
	ConfigPeers []mcp.Options
	// ConfigKube are clusters of Kubernetes whose Istio objects the server follows, after all
	// other sources. The server sets Log.
	ConfigKube []cluster.Options
	// WriteStatus has the leader write conditions of these objects into the clusters. It needs
	// ObjectStatus.
	WriteStatus bool
	// ExportSources exports the objects of all sources to other control planes. Otherwise only
	// those of the store are exported.
	ExportSources bool

	// SealingKey is the file of the keys that seal secrets. It is created if the store has no
	// secret yet. Empty means sealing.key in the directory of an embedded store, and none for
	// another store.
	SealingKey string

	// Authority names the files of an operator's certificate authority; nil means that the
	// authority's keys are in the store. MaxCertificateLife bounds the lifetime of the
	// certificates that it signs; 0 means authority.DefaultMaxLife. RenewExpired is how long
	// after its end a certificate can still be renewed; 0 means that it cannot.
	Authority          *authority.Files
	MaxCertificateLife time.Duration
	RenewExpired       time.Duration

	// Consul configures the registry of Consul; nil means none. The server sets XDS, Worker,
	// Memory, Registerer and Logger.
	Consul *consul.Options
	// Clusters are the clusters of Kubernetes whose services are in the mesh, beside those that Secrets
	// name.
	Clusters []cluster.Options
	// NoSelectWorkloadEntries has Services of clusters select no WorkloadEntries, and NoSelectPods
	// has ServiceEntries select no pods.
	NoSelectWorkloadEntries, NoSelectPods bool
	// SecretsKube are the namespaces of clusters whose secrets proxies of the namespaces of these
	// names may use, in the order in which they count.
	SecretsKube []SecretsKube
	// Endpoints configures the registry of endpoint files; nil means none. The server sets
	// XDS, Worker, Registerer and Logger.
	Endpoints *filesd.Options

	// WholeRoutes sends whole route configurations even to clients that accept single virtual
	// hosts.
	WholeRoutes bool
	// MaxFirstSyncs is how many proxies get their first resources at one time; 0 means 100.
	MaxFirstSyncs int
	// MachineLease is within which time a machine that registers itself is gone when it is gone; 0
	// means storage.DefaultLease.
	MachineLease time.Duration
	// MaxConnectionAge is how long a proxy stays connected; 0 means for ever.
	MaxConnectionAge time.Duration
	// MaxStreamsPerConnection bounds the streams of one connection; 0 means 100.
	MaxStreamsPerConnection uint32
	// DrainTime is the time over which a stopping server disconnects its proxies, so that they
	// connect to the others; 0 means that it does not.
	DrainTime time.Duration
	// BalanceInterval is how often a server that has many more proxies than the others
	// disconnects some of them; 0 means never.
	BalanceInterval time.Duration

	// StreamMemory and StreamsMemory bound the bytes kept for the requests of one stream and
	// of all streams of proxies; 0 means 64 MiB and 1 GiB.
	StreamMemory, StreamsMemory int64
	// HistoryMemory bounds the bytes of old object versions in memory; 0 means
	// cache.DefaultHistoryMemory.
	HistoryMemory int64
	// WatchMemory bounds the bytes of events on their way to watches of the config API; 0
	// means 64 MiB.
	WatchMemory int64
	// MaxWatches is how many watches of the config API may be open; 0 means 4000.
	MaxWatches int
	// MaxAPIConnections is how many connections to the config API may be open; 0 means 5000.
	MaxAPIConnections int64

	// ObjectStatus makes the leader write the progress of changes into the status of objects.
	ObjectStatus bool
	// AcceptUnserved accepts objects with security settings that are not served yet; they have
	// no effect.
	AcceptUnserved bool
	// Profiles serves profiles of the process on the config API.
	Profiles bool
	// Settings are what the server tells administrators of its settings.
	Settings []maintenance.Setting
	// Logger is the log for operators; nil discards it. LogLevels are its levels, which the config
	// API changes; nil means that they stay.
	Logger    *slog.Logger
	LogLevels *loglevel.Levels

	recent *recentLog // the newest lines of Logger
}

// SecretsKube names namespaces of a cluster of Kubernetes.
type SecretsKube struct {
	// Cluster is the cluster. The server sets Log.
	Cluster    cluster.Options
	Namespaces []string
}

// Embedded is a store that the server runs itself. DataDir is required.
type Embedded struct {
	// DataDir is its directory, created if missing.
	DataDir string
	// Args are the arguments with which this binary runs member.RunChild in a separate
	// process. InProcess runs the store in this process instead.
	Args      []string
	InProcess bool
	// Quota is the size in bytes at which the store refuses writes; 0 means
	// member.DefaultQuota.
	Quota int64
	// Retention is how long past revisions can be read; 0 means upkeep.DefaultRetention.
	Retention time.Duration
	// Cluster makes the store one of several members; nil means a single one. A cluster member
	// needs a separate process.
	Cluster *member.Cluster
	// UserRuntimeDir is the preferred directory of that process's socket; it may be
	// empty.
	UserRuntimeDir string
}

// Etcd is an etcd cluster that somebody else runs.
type Etcd struct {
	// Dial configures the connection. The server sets Logger.
	Dial dial.Options
	// MaxTxnOps and MaxRequestBytes are the cluster's limits; 0 means the limit of a stock
	// etcd.
	MaxTxnOps, MaxRequestBytes int
}

// withDefaults returns the options with defaults in place of zero values. It keeps zero values
// that another package interprets.
func (o Options) withDefaults() (Options, error) {
	if (o.Embedded == nil) == (o.Etcd == nil) {
		return o, errors.New("a server has one store: either an embedded one or an etcd cluster")
	}
	o.APIAddress = cmp.Or(o.APIAddress, "127.0.0.1:0")
	o.XDSAddress = cmp.Or(o.XDSAddress, "127.0.0.1:0")
	o.MachineLease = cmp.Or(o.MachineLease, storage.DefaultLease)
	o.MaxStreamsPerConnection = cmp.Or(o.MaxStreamsPerConnection, DefaultMaxStreamsPerConnection)
	o.MaxAPIConnections = cmp.Or(o.MaxAPIConnections, DefaultMaxAPIConnections)
	if o.Mesh == nil {
		o.Mesh = meshconfig.Default()
	}
	if o.Addresses == (address.Ranges{}) {
		o.Addresses = address.DefaultRanges()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// The defaults of options.
const (
	DefaultMaxStreamsPerConnection = 100
	DefaultMaxAPIConnections       = 5000
)
