package serve

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/portolan-mesh/portolan/cache/mcp"
	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/discovery/filesd"
	"github.com/portolan-mesh/portolan/discovery/identity/authority"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// Options say what a server is to be. One of Embedded and Etcd is required; the zero
// value of every other field is of use.
type Options struct {
	// Version is the announced version of the binary, such as v1.2.3.
	Version string

	// APIAddress and XDSAddress are HOST:PORT of the config API and of xDS. Port 0
	// picks a free one; empty stands for a free one of 127.0.0.1.
	APIAddress, XDSAddress string
	// APISocket is the path of a unix socket on which the config API listens too, for
	// this user alone. Empty stands for api.sock in the directory of an embedded store
	// as far as it can be opened there, and for none with another store.
	APISocket string

	// TLS is how other machines are served.
	TLS TLS
	// MaxIdentityStreams is how many streams of xDS the clients of one identity may have; 0
	// stands for admission.DefaultMaxIdentityStreams.
	MaxIdentityStreams int

	// AnonymousLoopback lets in whoever calls the config API from this machine as its
	// administrator, also when there are users.
	AnonymousLoopback bool

	// Mesh is the mesh configuration; nil stands for Istio's defaults.
	Mesh *meshconfig.Config

	// Embedded is the etcd that the server runs itself, and Etcd one that somebody else
	// runs. Exactly one of them is set.
	Embedded *Embedded
	Etcd     *Etcd
	// Backup is the schedule of snapshots of the store; nil for none. The server sets
	// its Schemas.
	Backup *backup.Schedule
	// Addresses are the ranges from which hosts of ServiceEntries get addresses; the zero
	// value stands for address.DefaultRanges.
	Addresses address.Ranges

	// ConfigDirs are directories of configuration, which are followed beside the store: the
	// first that has an object wins it, after the store, or before it with ConfigDirsFirst.
	ConfigDirs      []string
	ConfigDirsFirst bool
	// ConfigPeers are other control planes whose objects are followed, behind the store and
	// the directories. The server fills in Worker, Schemas, Domain, AcceptUnserved, NodeName,
	// HistoryMemory, Log and Registerer.
	ConfigPeers []mcp.Options
	// ExportSources gives other control planes the objects of all sources. Otherwise they
	// get those of the store alone.
	ExportSources bool

	// SealingKey is the file of the keys that seal secrets, made if the store has no secret
	// yet. Empty stands for sealing.key in the directory of an embedded store, and for none
	// with another store.
	SealingKey string

	// Authority are the files of an operator's certificate authority; nil for one whose keys
	// are in the store. MaxCertificateLife bounds the certificates that it signs; 0 stands
	// for authority.DefaultMaxLife.
	Authority          *authority.Files
	MaxCertificateLife time.Duration

	// Consul is the registry of Consul; nil for none. The server fills in XDS, Worker,
	// Memory, Registerer and Logger.
	Consul *consul.Options
	// Endpoints is the registry of files of endpoints; nil for none. The server fills in
	// XDS, Worker, Registerer and Logger.
	Endpoints *filesd.Options

	// WholeRoutes sends whole route tables also to clients that take virtual hosts one
	// by one.
	WholeRoutes bool
	// MaxFirstSyncs is how many proxies get their first resources at one time; 0 stands
	// for 100.
	MaxFirstSyncs int
	// MaxConnectionAge is for how long a proxy stays connected; 0 is for ever.
	MaxConnectionAge time.Duration
	// MaxStreamsPerConnection bounds the streams of one connection; 0 stands for 100.
	MaxStreamsPerConnection uint32
	// DrainTime is the time over which a server that stops sends its proxies to the
	// others; 0 sends none.
	DrainTime time.Duration
	// BalanceInterval is how often a server that has many more proxies than the others
	// sends some of them away; 0 is never.
	BalanceInterval time.Duration

	// StreamMemory and StreamsMemory bound the bytes kept of what one stream and all
	// streams of proxies request; 0 stands for 64 MiB and 1 GiB.
	StreamMemory, StreamsMemory int64
	// HistoryMemory bounds the bytes of old versions of objects in memory; 0 stands for
	// cache.DefaultHistoryMemory.
	HistoryMemory int64
	// WatchMemory bounds the bytes of events that watches of the config API are being
	// sent; 0 stands for 64 MiB.
	WatchMemory int64
	// MaxWatches is how many watches of the config API may be open; 0 stands for 4000.
	MaxWatches int
	// MaxAPIConnections is how many connections to the config API may be open; 0 stands
	// for 5000.
	MaxAPIConnections int64

	// ObjectStatus has the leader write into the status of objects how far their changes
	// have come.
	ObjectStatus bool
	// AcceptUnserved takes objects whose security is not served yet, without effect.
	AcceptUnserved bool
	// Profiles shows profiles of the process on the config API.
	Profiles bool
	// Logger logs for an operator; nil discards it.
	Logger *slog.Logger
}

// Embedded is a store that the server runs itself. DataDir is required.
type Embedded struct {
	// DataDir is its directory, created if missing.
	DataDir string
	// Args are the arguments with which this binary runs member.RunChild, in a process of
	// its own. InProcess runs the store in this process instead.
	Args      []string
	InProcess bool
	// NewStore begins an empty store although DataDir had one.
	NewStore bool
	// Quota is the size in bytes at which it takes no more writes; 0 stands for
	// member.DefaultQuota.
	Quota int64
	// Retention is how long past revisions can be read; 0 stands for
	// upkeep.DefaultRetention.
	Retention time.Duration
	// Cluster makes it one of several members; nil is a store of one. It takes a
	// process of its own.
	Cluster *member.Cluster
	// UserRuntimeDir is the preferred directory of that process's socket; it may be
	// empty.
	UserRuntimeDir string
}

// Etcd is an etcd cluster that somebody else runs.
type Etcd struct {
	// Dial says how it is reached. The server fills in Logger.
	Dial dial.Options
	// MaxTxnOps and MaxRequestBytes are its limits; 0 is the limit of a stock etcd.
	MaxTxnOps, MaxRequestBytes int
}

// withDefaults returns the options with defaults in place of zero values. It leaves
// zero values to which another package gives a meaning.
func (o Options) withDefaults() (Options, error) {
	if (o.Embedded == nil) == (o.Etcd == nil) {
		return o, errors.New("a server has one store: either an embedded one or an etcd cluster")
	}
	o.APIAddress = cmp.Or(o.APIAddress, "127.0.0.1:0")
	o.XDSAddress = cmp.Or(o.XDSAddress, "127.0.0.1:0")
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
