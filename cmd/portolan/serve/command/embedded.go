package command

import (
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

// embeddedStore holds the flags of the store that serve runs itself.
type embeddedStore struct {
	dataDir   string
	inProcess bool
	retention time.Duration
	quota     resource.QuantityValue
	cluster   storeCluster
}

func (o *embeddedStore) register(f *pflag.FlagSet) {
	f.StringVar(&o.dataDir, "data-dir", defaultDataDir(), "directory of the embedded store; created if missing")
	f.BoolVar(&o.inProcess, "store-in-process", false,
		"run the embedded store in this process: faster, but a fatal error in etcd, such as a full disk, ends the server")
	f.DurationVar(&o.retention, "store-retention", upkeep.DefaultRetention, "how long past revisions of the embedded store can be read, at least 1m")
	o.quota.Quantity = *resource.NewQuantity(member.DefaultQuota, resource.BinarySI)
	f.Var(&o.quota, "store-quota", "size at which the embedded store takes no more writes, at least 64Mi")
}

// exclude reports the flags that were given although another store is used.
func (o *embeddedStore) exclude(given func(flag string) bool, add addFault) {
	for _, flag := range append([]string{"data-dir", "store-in-process", "store-retention", "store-quota"}, clusterFlags...) {
		if given(flag) {
			add(flag, "is of the embedded store: leave it out with --etcd-endpoints")
		}
	}
}

func (o *embeddedStore) validate(given func(flag string) bool, add addFault) {
	o.cluster.validate(given, o.dataDir, o.inProcess, add)
	if o.retention < upkeep.MinRetention {
		add("store-retention", "%s is too short: those who watch need the recent past: keep at least %s", o.retention, upkeep.MinRetention)
	}
	if o.quota.Value() < minQuota {
		add("store-quota", "%s is too small for an apply of some thousand objects: give at least 64Mi", o.quota.String())
	}
}

// minQuota has room for several of the largest batches that the store accepts.
const minQuota = 64 << 20

// defaultDataDir returns the default directory of the embedded store.
func defaultDataDir() string {
	if os.Getuid() == 0 {
		return "/var/lib/portolan"
	}
	if state := os.Getenv("XDG_STATE_HOME"); state != "" {
		return filepath.Join(state, "portolan")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "portolan-data"
	}
	return filepath.Join(home, ".local", "state", "portolan")
}

func (o *embeddedStore) embedded(args []string) *serve.Embedded {
	return &serve.Embedded{
		DataDir: o.dataDir, Args: args, InProcess: o.inProcess,
		Quota: o.quota.Value(), Retention: o.retention, Cluster: o.cluster.cluster(), UserRuntimeDir: os.Getenv("XDG_RUNTIME_DIR"),
	}
}
