package member

import (
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/zaplog"
)

// Limits of one transaction and one request: they allow a batch of more than ten
// thousand objects, with two more operations for the address of each object's host.
const (
	MaxTxnOps       = 60_000
	MaxRequestBytes = 24 << 20
)

// DefaultQuota is the default size at which the database takes no more writes: room for
// a million objects and their history.
const DefaultQuota = 2 << 30

// memberName and peerURL identify the only member of a cluster of one. Nothing listens
// on peerURL: etcd wants one, and the same one at each start.
const (
	memberName = "portolan"
	peerURL    = "http://localhost:2380"
)

// etcdConfig is the configuration of a cluster of one. It keeps a short log in memory,
// since nobody has to catch up from it, and listens on the socket or not at all. Its
// clock is etcd's default: each tick wakes the process, and a lone member need not wait
// for an election (campaign). Cluster.configure changes it for one of several members.
func etcdConfig(opts Options) (*embed.Config, error) {
	peer, err := url.Parse(peerURL)
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = etcdDir(opts.DataDir)
	cfg.InitialCluster = memberName + "=" + peerURL
	cfg.AdvertisePeerUrls = []url.URL{*peer}
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = nil, nil
	if opts.Socket != "" {
		socket := url.URL{Scheme: "unix", Path: opts.Socket}
		cfg.ListenClientUrls = []url.URL{socket}
		cfg.AdvertiseClientUrls = []url.URL{socket}
	}
	cfg.EnableGRPCGateway = false
	cfg.ServiceRegister = opts.servers.add

	cfg.SnapshotCount = 500
	cfg.SnapshotCatchUpEntries = 50
	cfg.MaxWalFiles = 2

	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.StaticStreamWindowSize(dial.Window), grpc.StaticConnWindowSize(dial.Window)}
	cfg.MaxTxnOps = MaxTxnOps
	cfg.MaxRequestBytes = MaxRequestBytes
	cfg.QuotaBackendBytes = opts.Quota
	cfg.AutoCompactionRetention = "0" // upkeep compacts
	// A batch of 10,000 objects takes half a second. etcd's default limits, 0.1 and 0.3
	// s, would report every such batch as slow.
	cfg.WarningApplyDuration = time.Second
	cfg.WarningUnaryRequestDuration = time.Second

	gates, ok := cfg.ServerFeatureGate.(interface {
		SetFromMap(map[string]bool) error
	})
	if !ok {
		return nil, fmt.Errorf("etcd's feature gates are a %T, which cannot be set", cfg.ServerFeatureGate)
	}
	if err := gates.SetFromMap(map[string]bool{
		"CompactHashCheck": true,
		// One of several checks once the others answer (compareData): before that, members
		// that start together would wait 14 seconds for each other.
		"InitialCorruptCheck": opts.Cluster == nil,
		// Peers compare the address from which a member calls with its certificate.
		"SetMemberLocalAddr": opts.Cluster != nil,
	}); err != nil {
		return nil, err
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zaplog.New(opts.Logger, etcdLevel))
	return cfg, nil
}
