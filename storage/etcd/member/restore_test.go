package member_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// bump is how much a restore adds to revisions.
const bump = 1_000_000_000

// save writes a snapshot of the store behind a client.
func save(t *testing.T, client *clientv3.Client) (file string, s *backup.Summary) {
	t.Helper()
	body, revision, err := backup.Take(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "mesh.snapshot")
	s, err = backup.Write(body, file, backup.WriteOptions{MinRevision: revision, Schemas: schema.Pilot()})
	if err = errors.Join(err, body.Close()); err != nil {
		t.Fatal(err)
	}
	return file, s
}

// saved returns a snapshot in which key has value.
func saved(t *testing.T) (file string, s *backup.Summary) {
	t.Helper()
	m, err := member.Start(t.Context(), member.Options{DataDir: t.TempDir(), Logger: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range 5 {
		put(t, m.Client(), "key", fmt.Sprint("value", i))
	}
	return save(t, m.Client())
}

func instance(t *testing.T, client *clientv3.Client) etcd.Instance {
	t.Helper()
	found, err := etcd.ReadInstance(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestRestore: a restored store has the saved content, another identity, and a revision
// that nobody has seen. A watch from before fails.
func TestRestore(t *testing.T) {
	t.Parallel()
	first := startMember(t, member.Options{DataDir: t.TempDir(), Logger: logger(t)})
	put(t, first.Client(), "key", "saved")
	put(t, first.Client(), etcd.InstanceKey, "the-instance")
	file, s := save(t, first.Client())
	put(t, first.Client(), "key", "later")
	before := instance(t, first.Client())

	clusters := map[uint64]bool{before.Cluster: true}
	for range 2 { // each restore of one file is another store
		dir := filepath.Join(t.TempDir(), "new", "data")
		restored, err := member.Restore(t.Context(), member.RestoreOptions{File: file, DataDir: dir, Schemas: schema.Pilot()})
		if err != nil {
			t.Fatal(err)
		}
		if restored.Revision != s.Revision+bump || restored.Hash != s.Hash {
			t.Errorf("%+v, want revision %d", restored, s.Revision+bump)
		}
		m := startMember(t, member.Options{DataDir: dir, Logger: logger(t)})
		if got := get(t, m.Client(), "key"); got != "saved" {
			t.Errorf("key is %q", got)
		}
		after := instance(t, m.Client())
		if clusters[after.Cluster] || after.ID != "the-instance" || after.Revision != s.Revision+bump {
			t.Errorf("%+v, and was %+v", after, before)
		}
		clusters[after.Cluster] = true
		watch := <-m.Client().Watch(t.Context(), "key", clientv3.WithRev(before.Revision+1))
		if watch.CompactRevision != s.Revision+bump || !errors.Is(watch.Err(), rpctypes.ErrCompacted) {
			t.Errorf("a watch from before: %+v, %v", watch, watch.Err())
		}
		put(t, m.Client(), "key", "again")
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
	}
}

// TestRestoreEndsLeases: the leader of the saved store does not lead the restored one.
func TestRestoreEndsLeases(t *testing.T) {
	t.Parallel()
	first := startMember(t, member.Options{DataDir: t.TempDir(), Logger: logger(t)})
	granted, err := first.Client().Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Client().Put(t.Context(), "leader", "the old one", clientv3.WithLease(granted.ID)); err != nil {
		t.Fatal(err)
	}
	put(t, first.Client(), "key", "saved")
	file, _ := save(t, first.Client())

	dir := filepath.Join(t.TempDir(), "data")
	if _, err := member.Restore(t.Context(), member.RestoreOptions{File: file, DataDir: dir, Schemas: schema.Pilot()}); err != nil {
		t.Fatal(err)
	}
	m := startMember(t, member.Options{DataDir: dir, Logger: logger(t)})
	eventually(t, "the old leader is gone", func() bool {
		answer, err := m.Client().Get(t.Context(), "leader", clientv3.WithCountOnly())
		return err == nil && answer.Count == 0
	})
	if got := get(t, m.Client(), "key"); got != "saved" {
		t.Errorf("key is %q", got)
	}
}

// TestRestoreLeavesNothingWhereItFails: a failed restore leaves no partial directory,
// and changes no existing file.
func TestRestoreLeavesNothingWhereItFails(t *testing.T) {
	t.Parallel()
	file, _ := saved(t)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, content[:len(content)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	running := startMember(t, member.Options{DataDir: t.TempDir(), Logger: logger(t)})
	used := filepath.Join(t.TempDir(), "used")
	if _, err := member.Restore(t.Context(), member.RestoreOptions{File: file, DataDir: used}); err != nil {
		t.Fatal(err)
	}
	photos := t.TempDir()
	if err := os.WriteFile(filepath.Join(photos, "cat.jpg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inUse := t.TempDir()
	other := startMember(t, member.Options{DataDir: inUse, Logger: logger(t)})
	peers := []member.Peer{{Name: "a", URL: "http://127.0.0.1:1"}, {Name: "b", URL: "http://127.0.0.1:2"}}
	for name, c := range map[string]struct {
		o     member.RestoreOptions
		is    error
		words string
	}{
		"half a snapshot":     {member.RestoreOptions{File: bad}, backup.ErrNoSnapshot, bad},
		"no file":             {member.RestoreOptions{File: bad + "x"}, os.ErrNotExist, bad + "x"},
		"used directory":      {member.RestoreOptions{File: file, DataDir: used}, member.ErrNotEmpty, "it has etcd"},
		"another's directory": {member.RestoreOptions{File: file, DataDir: photos}, member.ErrNotEmpty, "cat.jpg"},
		"directory in use":    {member.RestoreOptions{File: file, DataDir: inUse}, member.ErrInUse, "is held by process"},
		"no token":            {member.RestoreOptions{File: file, Name: "a", Initial: peers}, nil, "one id of the restore"},
		"not a member":        {member.RestoreOptions{File: file, Name: "c", Initial: peers, Token: "x"}, nil, `"c" is not among`},
		"bad peer URL":        {member.RestoreOptions{File: file, Name: "a", Initial: []member.Peer{{Name: "a", URL: "nowhere"}}}, nil, "nowhere"},
	} {
		parent := t.TempDir()
		fresh := c.o.DataDir == ""
		if fresh {
			c.o.DataDir = filepath.Join(parent, "data")
		}
		_, err := member.Restore(t.Context(), c.o)
		if err == nil || (c.is != nil && !errors.Is(err, c.is)) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %v and %q", name, err, c.is, c.words)
		}
		if left := entries(t, parent); len(left) > 0 {
			t.Errorf("%s: %q is left behind", name, left)
		}
	}
	if got := entries(t, photos); len(got) != 1 && len(got) != 2 { // possibly with a lock
		t.Errorf("another's directory has %q", got)
	}
	put(t, other.Client(), "still", "here")
	put(t, running.Client(), "still", "here")
	if m := startMember(t, member.Options{DataDir: used, Logger: logger(t)}); get(t, m.Client(), "key") != "value4" {
		t.Error("what was restored first has changed")
	}
}

// TestRestoreOfAnEtcdWithUsers: the restored store has no users.
func TestRestoreOfAnEtcdWithUsers(t *testing.T) {
	t.Parallel()
	ctx, from := t.Context(), t.TempDir()
	m, err := member.Start(ctx, member.Options{DataDir: from, Logger: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	put(t, m.Client(), "key", "value")
	_, err = m.Client().UserAdd(ctx, "root", "secret")
	if err == nil {
		_, err = m.Client().RoleAdd(ctx, "root")
	}
	if err == nil {
		_, err = m.Client().UserGrantRole(ctx, "root", "root")
	}
	if err == nil {
		_, err = m.Client().AuthEnable(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := backup.Take(ctx, m.Client()); err == nil {
		t.Error("a snapshot without a user")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	database, err := os.ReadFile(filepath.Join(from, "etcd", "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(database)
	file := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(file, append(database, sum[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	if _, err := member.Restore(ctx, member.RestoreOptions{File: file, DataDir: dir}); err != nil {
		t.Fatal(err)
	}
	if restored := startMember(t, member.Options{DataDir: dir, Logger: logger(t)}); get(t, restored.Client(), "key") != "value" {
		t.Error("not what was saved")
	}
}

// TestRestoreThreeMembers: each is restored on its own, and all agree.
func TestRestoreThreeMembers(t *testing.T) {
	t.Parallel()
	file, s := saved(t)
	var peers []member.Peer
	var clientURLs []string
	for i := range 3 {
		peers = append(peers, member.Peer{Name: fmt.Sprint("cp-", i), URL: "http://" + freeAddress(t)})
		clientURLs = append(clientURLs, "http://"+freeAddress(t))
	}
	children := make([]*member.Child, 3)
	endpoints := make([]string, 3)
	var starting sync.WaitGroup
	for i, p := range peers {
		o := childOptions(t, filepath.Join(t.TempDir(), "data"))
		o.Cluster = &member.Cluster{Name: p.Name, PeerURL: p.URL, ClientURL: clientURLs[i], Initial: peers}
		_, err := member.Restore(t.Context(), member.RestoreOptions{File: file, DataDir: o.DataDir, Name: p.Name, Initial: peers, Token: "2026-11-21 07:00"})
		if err != nil {
			t.Fatal(err)
		}
		if children[i], err = member.NewChild(o); err != nil {
			t.Fatal(err)
		}
		starting.Go(func() {
			var err error
			if endpoints[i], err = children[i].Start(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	t.Cleanup(func() {
		var closing sync.WaitGroup
		for _, c := range children {
			closing.Go(func() { _ = c.Close() })
		}
		closing.Wait()
	})
	if t.Failed() {
		return
	}
	clients := make([]*clientv3.Client, 3)
	for i, endpoint := range endpoints {
		clients[i] = clientOf(t, endpoint)
		get(t, clients[i], "key") // once it has a leader
	}
	put(t, clients[0], "key", "new")
	hashes := map[uint32]bool{}
	for i, client := range clients {
		eventually(t, fmt.Sprintf("member %d has the write", i), func() bool {
			r, err := client.Get(t.Context(), "key", clientv3.WithSerializable())
			return err == nil && len(r.Kvs) == 1 && string(r.Kvs[0].Value) == "new"
		})
		at := instance(t, client)
		if at.Cluster != instance(t, clients[0]).Cluster || at.Revision != s.Revision+bump+1 {
			t.Errorf("member %d: %+v", i, at)
		}
		hash, err := client.HashKV(t.Context(), endpoints[i], at.Revision)
		if err != nil {
			t.Fatal(err)
		}
		hashes[hash.Hash] = true
	}
	if len(hashes) != 1 {
		t.Errorf("the members differ: %v", hashes)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	address := l.Addr().String()
	_ = l.Close()
	return address
}
