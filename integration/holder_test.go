package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// holder has the content of a data directory's lock file.
type holder struct {
	PID, ParentPID int
	SocketDir      string
}

func holderOf(dataDir string) (holder, error) {
	var out holder
	text, err := os.ReadFile(filepath.Join(dataDir, "portolan.lock"))
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("the lock says %q: %w", text, err)
	}
	return out, nil
}

// storeOf returns the pid of the process that uses a data directory. While the lock file is
// being written, it names none.
func storeOf(t testing.TB, dataDir string) int {
	t.Helper()
	var h holder
	eventually(t, "the lock names a store process", func() (err error) {
		if h, err = holderOf(dataDir); err == nil && h.PID == h.ParentPID {
			err = fmt.Errorf("it names %+v", h)
		}
		return err
	})
	return h.PID
}

// openStore returns a client of the embedded etcd of a data directory. The caller closes it.
func openStore(t testing.TB, dataDir string) *clientv3.Client {
	t.Helper()
	h, err := holderOf(dataDir)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dial.New(dial.Options{Endpoints: []string{"unix://" + filepath.Join(h.SocketDir, "etcd.sock")}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// storedKeys returns all stored keys with values and revisions. It leaves out elections, statuses
// and events, which servers write at any time, with the kinds beside those of the mesh.
func (s *server) storedKeys() string {
	s.t.Helper()
	client := openStore(s.t, s.o.dataDir)
	defer func() { _ = client.Close() }()
	all, err := client.Get(s.t.Context(), etcd.Root, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		s.t.Fatal(err)
	}
	var out strings.Builder
	for _, kv := range all.Kvs {
		key := string(kv.Key)
		if !slices.ContainsFunc([]string{etcd.ElectionPrefix, etcd.StatusPrefix, etcd.ObjectsPrefix}, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			_, _ = fmt.Fprintf(&out, "%s at %d\n", key, kv.ModRevision)
		}
	}
	return out.String()
}
