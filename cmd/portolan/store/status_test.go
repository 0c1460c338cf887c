package store

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
)

type reports maintenance.Status

func (r reports) StoreStatus(context.Context) maintenance.Status { return maintenance.Status(r) }

func startReporting(t *testing.T, status maintenance.Status) clitest.API {
	t.Helper()
	return line.On(resttest.Start(t, 0, nil, func(s *rest.Server) {
		maintenance.Register(s, maintenance.Options{Status: reports(status)})
	}))
}

// TestStoreStatus: the status fits one screen, and the exit code shows whether it needs
// attention.
func TestStoreStatus(t *testing.T) {
	t.Parallel()
	status := maintenance.Status{
		Server: maintenance.ServerStatus{Version: "v1.2.3", Host: "cp-1", PID: 7, Store: maintenance.Embedded, DataDir: "/data"},
		Store: &maintenance.StoreStatus{
			Cluster: "abc", Instance: "id", Revision: 815, Compacted: 700, DBBytes: 3 << 20, DBInUseBytes: 1 << 20, QuotaBytes: 2 << 30, FreeBytes: 5 << 30,
			Members: []maintenance.StoreMember{
				{ID: "1", Name: "cp-1", Version: "3.7.3", Leader: true, DBBytes: 3 << 20, Index: 99}, {ID: "2", Name: "cp-2", Learner: true, Error: "unreachable"},
			},
		},
		Cache: maintenance.CacheStatus{Revision: 815, Objects: 12, StalenessSeconds: 0.5},
		Registries: []maintenance.RegistryStatus{
			{Name: "ServiceEntry", State: "live", Services: 3},
			{Name: "Consul/dc1", State: "lastKnown", AsOf: time.Now().Add(-3 * time.Hour), Services: 1}, {Name: "Consul/dc2", State: "syncing"},
		},
		Sources:      []maintenance.SourceStatus{{Name: "kube://east", Objects: 7, Refused: 3}, {Name: "secrets/east", Objects: 1, Problem: "away"}},
		Jobs:         []maintenance.JobStatus{{Name: "pruner", Leader: "cp-1"}},
		Certificates: &maintenance.CertificatesStatus{Member: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Authority: time.Date(2046, 1, 2, 3, 4, 5, 0, time.UTC)},
		Backup:       &maintenance.BackupStatus{Time: time.Now().Add(-2 * time.Hour), File: "/b/x.snapshot", Revision: 800},
	}
	good := startReporting(t, status)
	out := good.Must(t, "", "store", "status")
	for _, words := range []string{
		"v1.2.3, process 7 on cp-1", "embedded, in /data", "cluster abc, instance id", "815, compacted to 700", "3.0 MiB, 1.0 MiB in use; quota 2.0 GiB (0 % used); 5.0 GiB free",
		"revision 815, 12 objects, at most 500ms old", "ServiceEntry: live, 3 services", "Consul/dc1: as last known 3h ago (20", "), 1 service\n", "Consul/dc2: not read yet", "kube://east: followed, 7 objects, 3 faults\n", "secrets/east: degraded, 1 object\n", "pruner: cp-1", "2h ago, revision 800, /b/x.snapshot", "leader", "learner",
	} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is not in\n%s", words, out)
		}
	}
	for _, output := range []string{"json", "yaml"} {
		if out := good.Must(t, "", "store", "status", "-o", output); !strings.Contains(out, "stalenessSeconds") {
			t.Errorf("-o %s: %s", output, out)
		}
	}
	status.Problems = []string{"the store is on fire"}
	bad := startReporting(t, status)
	if o := bad.Do(t, "", "store", "status"); o.Code != exit.Failure || !strings.Contains(o.Out, "! the store is on fire") || !strings.Contains(o.Err, "there is a problem, see above") {
		t.Errorf("%+v", o)
	}
	if o := good.Do(t, "", "store", "compact"); o.Code == exit.OK || !strings.Contains(o.Err, "etcdctl compact") {
		t.Errorf("compact of a store of others: %+v", o)
	}
}

// TestBackupFlags: invalid flags are usage errors, a file that is no backup or no key is bad data.
// Neither leaves anything behind.
func TestBackupFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "text")
	if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "open.key")
	if err := os.WriteFile(open, []byte("0123456789abcdef"), 0o644); err != nil {
		t.Fatal(err)
	}
	to := " --data-dir " + dir + "/d"
	for args, code := range map[string]int{
		"inspect " + file: exit.Data, "inspect " + file + "x": exit.Data, "inspect": exit.Usage, "inspect " + file + " -o name": exit.Usage,
		"restore " + file: exit.Usage, "restore " + file + to: exit.Data,
		"restore " + file + to + " --without-keys":                                                                   exit.Data,
		"restore " + file + to + " --store-name a":                                                                   exit.Usage,
		"restore " + file + to + " --store-name a --store-initial-cluster a=nowhere":                                 exit.Usage,
		"restore " + file + to + " --store-name a --store-initial-cluster a=http://127.0.0.1:1,b=http://127.0.0.1:2": exit.Usage,
		"backup " + file + " --without-keys":                                                                         exit.Usage, "backup " + dir + "/new": exit.Usage,
		"backup " + dir + "/new --key-file " + file: exit.Data, "backup " + dir + "/new --key-file " + open: exit.Data,
		"backup " + dir + "/new --key-file " + dir + "/absent": exit.Data, "backup " + dir + "/new --key-file x --without-keys": exit.Usage,
	} {
		if o := do(t, "", append([]string{"store"}, strings.Fields(args)...)...); o.Code != code || o.Err == "" {
			t.Errorf("%s: %+v, want exit code %d", args, o, code)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}
