package filesd_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/filesd"
	"github.com/portolan-mesh/portolan/discovery/registrytest"
	"github.com/portolan-mesh/portolan/storage/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick is a short timing for tests.
var quick = files.Timing{Settle: 5 * time.Millisecond, MaxSettle: 50 * time.Millisecond, Hold: time.Minute, Rescan: time.Minute}

type group struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// replace writes a file in one step.
func replace(t testing.TB, name, text string) {
	t.Helper()
	temporary := filepath.Join(filepath.Dir(name), ".tmp")
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, name); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, func(t *testing.T, xds discovery.XDSUpdater, worker *cache.Worker) registrytest.Source {
		name := filepath.Join(t.TempDir(), "targets.json")
		r, err := filesd.New(filesd.Options{Files: []string{name}, Cluster: "f1", XDS: xds, Worker: worker, Timing: quick})
		if err != nil {
			t.Fatal(err)
		}
		return registrytest.Source{
			Registry: r, Provider: discovery.File, Cluster: "f1",
			Offer: func(services ...registrytest.Service) { replace(t, name, listOf(t, services)) },
		}
	})
}

func listOf(t testing.TB, services []registrytest.Service) string {
	t.Helper()
	groups := []group{}
	for _, s := range services {
		for _, i := range s.Instances {
			groups = append(groups, group{
				Targets: []string{net.JoinHostPort(i.Address, strconv.Itoa(s.Port))},
				Labels:  map[string]string{"portolan_service": s.Name, "portolan_namespace": s.Namespace, "portolan_protocol": "http", "v": i.Labels["v"]},
			})
		}
	}
	text, err := json.Marshal(groups)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
