package backup_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var pilot = backup.WriteOptions{Schemas: schema.Pilot()}

func entry(name string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.ServiceEntry, Name: name, Namespace: "shop"},
		Spec: &networking.ServiceEntry{
			Hosts: []string{name + ".shop"}, Resolution: networking.ServiceEntry_STATIC,
			Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}},
		},
	}
}

func newStore(t *testing.T, client *clientv3.Client) *etcd.Store {
	t.Helper()
	store, err := etcd.New(client, etcd.Options{Schemas: schema.Pilot(), MaxTxnOps: etcdtest.MaxTxnOps})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// create puts objects into a store as one change.
func create(t *testing.T, store *etcd.Store, names ...string) {
	t.Helper()
	var ops []storage.Op
	for _, name := range names {
		ops = append(ops, storage.Op{Verb: storage.Create, Config: entry(name)})
	}
	if _, _, err := store.Apply(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
}

// take reads a whole snapshot.
func take(t *testing.T, client *clientv3.Client) (content []byte, revision int64) {
	t.Helper()
	body, revision, err := backup.Take(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	content, err = io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		t.Fatal(err)
	}
	return content, revision
}

// remains fails unless the directory holds exactly these files.
func remains(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the directory has %q, want %q", got, want)
	}
}

// TestSaveAndInspect takes a snapshot in process and over a socket, and looks
// into it.
func TestSaveAndInspect(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]*clientv3.Client{
		"in process": etcdtest.Start(t), "socket": etcdtest.Dial(t, etcdtest.Listen(t)),
	} {
		store := newStore(t, client)
		identity, err := etcd.EnsureInstance(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		create(t, store, "a", "b", "c")
		if _, err := store.Delete(t.Context(), schema.ServiceEntry, "b", "shop", ""); err != nil {
			t.Fatal(err)
		}
		confirmed := time.Unix(1234, 0).UTC()
		head, err := etcd.EncodeRegistryHead(&etcd.RegistryHead{Source: "consul/_/_", Confirmed: confirmed})
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]string{
			etcd.RegistryHeadKey("consul/_/_"):                              string(head),
			etcd.ConfigPrefix + "networking.istio.io/ServiceEntry/shop/bad": "no envelope",
			etcd.ConfigPrefix + "example.io/Kettle/shop/one":                "of a newer version",
			"/others/key": "x",
		} {
			if _, err := client.Put(t.Context(), key, value); err != nil {
				t.Fatal(err)
			}
		}
		body, revision, err := backup.Take(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "mesh.snapshot")
		o := pilot
		o.MinRevision = revision
		s, err := backup.Write(body, file, o)
		if err = errors.Join(err, body.Close()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := backup.Inspect(file, schema.Pilot())
		if err != nil || fmt.Sprint(*again) != fmt.Sprint(*s) {
			t.Errorf("%s: inspected: %+v, %v; saved: %+v", name, again, err, s)
		}
		if got, want := fmt.Sprint(s.Objects), "[{example.io Kettle 1 1} {networking.istio.io ServiceEntry 3 1}]"; got != want {
			t.Errorf("%s: objects %s, want %s", name, got, want)
		}
		if s.Revision != revision || s.Instance != identity.ID || s.Records != 2 || s.Other != 1 || s.Count() != 4 || s.Format != etcd.StorageFormat || s.Last.Before(s.First) || s.First.IsZero() {
			t.Errorf("%s: %+v, want revision %d, instance %s", name, s, revision, identity.ID)
		}
		if got, want := fmt.Sprint(s.Registries), fmt.Sprint([]backup.RegistrySource{{Source: "consul/_/_", Confirmed: confirmed}}); got != want {
			t.Errorf("%s: registries %s, want %s", name, got, want)
		}
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 || info.Size() != s.Size {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		remains(t, filepath.Dir(file), "mesh.snapshot")
	}
}

// TestRevisionOfACompactedSnapshot: the newest revision may be a deletion that
// compaction has removed.
func TestRevisionOfACompactedSnapshot(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	if _, err := client.Put(t.Context(), "/x", "1"); err != nil {
		t.Fatal(err)
	}
	deleted, err := client.Delete(t.Context(), "/x")
	if err != nil {
		t.Fatal(err)
	}
	at := deleted.Header.Revision
	if _, err := client.Compact(t.Context(), at, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	content, revision := take(t, client)
	s, err := backup.Write(bytes.NewReader(content), filepath.Join(t.TempDir(), "s"), pilot)
	if err != nil || revision != at || s.Revision != at || s.Compacted != at || s.Keys != 0 {
		t.Errorf("%+v, %v; want revision %d", s, err, at)
	}
}

// TestOnlyWholeSnapshotsAppear: whatever is wrong, no file appears under the name, and
// no temporary file stays.
func TestOnlyWholeSnapshotsAppear(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	create(t, newStore(t, client), "a")
	whole, revision := take(t, client)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	withHash := func(content []byte) []byte { // other content, with a hash that fits
		sum := sha256.Sum256(content)
		return append(bytes.Clone(content), sum[:]...)
	}
	damaged := bytes.Clone(whole[:len(whole)-sha256.Size])
	for page := 2; page*4096 < len(damaged); page++ { // flips that bbolt's own checks detect
		binary.LittleEndian.PutUint64(damaged[page*4096:], 1<<40)
	}
	for name, c := range map[string]struct {
		content io.Reader
		words   string
	}{
		"empty":           {strings.NewReader(""), "empty"},
		"cut in the hash": {bytes.NewReader(whole[:len(whole)-1]), "it was cut"},
		"without a hash":  {bytes.NewReader(whole[:len(whole)-sha256.Size]), "no hash follows"},
		"cut by a page":   {bytes.NewReader(append(bytes.Clone(whole[:4096]), whole[len(whole)-sha256.Size:]...)), "it was changed"},
		"a bit flipped":   {bytes.NewReader(flipped), "it was changed"},
		"text":            {strings.NewReader("apiVersion: networking.istio.io/v1"), "no snapshot"},
		"other bytes":     {bytes.NewReader(withHash(make([]byte, 8192))), "cannot be opened"},
		"damaged before":  {bytes.NewReader(withHash(damaged)), "damaged"},
		"broken off":      {io.MultiReader(bytes.NewReader(whole[:4096]), iotest.ErrReader(errors.New("connection lost"))), "connection lost"},
	} {
		dir := t.TempDir()
		_, err := backup.Write(c.content, filepath.Join(dir, "s"), pilot)
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", name, err, c.words)
		}
		remains(t, dir)
	}

	dir := t.TempDir()
	file := filepath.Join(dir, "s")
	o := pilot
	o.MinRevision = revision + 1
	if _, err := backup.Write(bytes.NewReader(whole), file, o); err == nil || !strings.Contains(err.Error(), "lacks writes") {
		t.Errorf("of a member that is behind: %v", err)
	}
	remains(t, dir)
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Write(bytes.NewReader(whole), file, pilot); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over another file: %v", err)
	}
	o = pilot
	o.Replace = true
	if _, err := backup.Write(bytes.NewReader(flipped), file, o); !errors.Is(err, backup.ErrNoSnapshot) {
		t.Errorf("a bad one over another file: %v", err)
	}
	if text, _ := os.ReadFile(file); string(text) != "precious" {
		t.Errorf("a failure has touched the file: %q", text)
	}
	if _, err := backup.Write(bytes.NewReader(whole), file, o); err != nil {
		t.Errorf("replace: %v", err)
	}
	remains(t, dir, "s")
	if _, err := backup.Write(bytes.NewReader(whole), dir, o); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("to a directory: %v", err)
	}
}

// TestInspectSeesEveryFlippedBit flips random bits of a snapshot.
func TestInspectSeesEveryFlippedBit(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	create(t, newStore(t, client), "a", "b")
	whole, _ := take(t, client)
	file := filepath.Join(t.TempDir(), "s")
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		content := bytes.Clone(whole)
		if at := random.IntN(8 * len(content)); random.IntN(4) > 0 {
			content[at/8] ^= 1 << (at % 8)
		} else {
			content = content[:at/8]
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := backup.Inspect(file, schema.Pilot()); !errors.Is(err, backup.ErrNoSnapshot) {
			t.Fatalf("%+v, %v", s, err)
		}
	}
}

func FuzzInspect(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 4096+32))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		sum := sha256.Sum256(content)
		file := filepath.Join(dir, "s")
		if err := os.WriteFile(file, append(content, sum[:]...), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := backup.Inspect(file, schema.Pilot()); err == nil && s.Revision < 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestSnapshotsWhileOthersWrite: each snapshot is of one revision, and has every write
// acknowledged before it began.
func TestSnapshotsWhileOthersWrite(t *testing.T) {
	t.Parallel()
	client := etcdtest.Dial(t, etcdtest.Listen(t))
	store := newStore(t, client)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				// Each change is a pair.
				one, two := entry(fmt.Sprintf("w%d-%d-one", w, i)), entry(fmt.Sprintf("w%d-%d-two", w, i))
				_, _, err := store.Apply(context.WithoutCancel(ctx), []storage.Op{{Verb: storage.Create, Config: one}, {Verb: storage.Create, Config: two}})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	dir := t.TempDir()
	for i := range 10 {
		body, revision, err := backup.Take(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		o := pilot
		o.MinRevision = revision
		s, err := backup.Write(body, filepath.Join(dir, fmt.Sprint(i)), o)
		if err = errors.Join(err, body.Close()); err != nil {
			t.Fatal(err)
		}
		if s.Count()%2 != 0 || s.Records != s.Count()/2 {
			t.Errorf("half a change is in a snapshot: %d objects, %d records", s.Count(), s.Records)
		}
	}
	stop()
	writers.Wait()
}

func TestTakeOfAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	client := etcdtest.Dial(t, "unix://"+filepath.Join(t.TempDir(), "nobody"))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := backup.Take(ctx, client); err == nil {
		t.Error("a snapshot of nothing")
	}
}
