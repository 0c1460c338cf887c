package upkeep_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, etcdtest.LeftByMembers()...) }

// A rig is a member that only the test maintains.
type rig struct {
	t        *testing.T
	client   *clientv3.Client
	endpoint string
	keeper   *upkeep.Keeper
	log      *journal
	clock    *clock
	stop     func()
}

func newRig(t *testing.T, quota int64, p upkeep.Policy) *rig {
	t.Helper()
	return newRigIn(t, t.TempDir(), quota, p)
}

func newRigIn(t *testing.T, dir string, quota int64, p upkeep.Policy) *rig {
	t.Helper()
	// On a socket, as in the child process; TestInProcess has none.
	runtime, err := os.MkdirTemp("/tmp", "pu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(runtime) })
	socket := filepath.Join(runtime, "s")
	m, err := member.Start(t.Context(), member.Options{DataDir: dir, Quota: quota, Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	client, err := dial.New(dial.Options{Endpoints: []string{"unix://" + socket}})
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		client.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	r := &rig{t: t, stop: stop, client: client, endpoint: "unix://" + socket, log: &journal{}, clock: &clock{now: time.Now()}}
	p.Now = r.clock.Now
	target := upkeep.Target{Client: r.client, Endpoint: r.endpoint, DataDir: dir}
	if r.keeper, err = upkeep.New(target, p, slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))); err != nil {
		t.Fatal(err)
	}
	return r
}

// check has the keeper look once.
func (r *rig) check() *upkeep.Status {
	r.t.Helper()
	if err := r.keeper.Check(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return r.keeper.Status()
}

func (r *rig) put(key string, size int) error {
	_, err := r.client.Put(r.t.Context(), key, strings.Repeat("v", size))
	return err
}

func (r *rig) mustPut(key string, size int) {
	r.t.Helper()
	if err := r.put(key, size); err != nil {
		r.t.Fatal(err)
	}
}

// expectLog fails unless the log has all these words, and clears the log.
func (r *rig) expectLog(words ...string) {
	r.t.Helper()
	text := r.log.take()
	for _, w := range words {
		if !strings.Contains(text, w) {
			r.t.Errorf("the log does not say %q:\n%s", w, text)
		}
	}
}

// A clock shows the time that the test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A journal is a log in memory.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := j.text.String()
	j.text.Reset()
	return text
}
