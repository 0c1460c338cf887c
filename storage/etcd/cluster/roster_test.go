package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, etcdtest.LeftByMembers()...) }

// newRoster returns a roster that asks the given endpoints first.
func newRoster(t *testing.T, endpoints ...string) *cluster.Roster {
	t.Helper()
	r := cluster.New(func(endpoint string) (*clientv3.Client, error) {
		return dial.New(dial.Options{Endpoints: []string{endpoint}})
	}, endpoints...)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// lookUntil looks until the members are as wanted.
func lookUntil(t *testing.T, r *cluster.Roster, what string, is func(*cluster.Membership) bool) *cluster.Membership {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		v, err := r.Look(ctx)
		if err == nil && is(v) {
			return v
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: not within 30 s: %+v, %v", what, v, err)
		}
	}
}

// slow is a clock that a busy machine can follow.
func slow(c *embed.Config) { c.TickMs, c.ElectionMs = 100, 1000 }

// TestRosterOfThree stops one of three members after the other, looks at them, and
// changes them as far as that is safe.
func TestRosterOfThree(t *testing.T) {
	t.Parallel()
	servers := etcdtest.Cluster(t, slow)
	r := newRoster(t, "unix:///no/such/socket", servers[0].Endpoint)
	v := lookUntil(t, r, "all serve", func(v *cluster.Membership) bool { return len(v.Serving()) == 3 && v.Leader() != nil })
	if cluster.Names(v.Members) != "m0, m1, m2" || v.Quorum() != 2 || v.Leader().Answer.Version == "" {
		t.Errorf("%+v", v)
	}
	if _, err := r.Remove(t.Context(), "m7"); !errors.Is(err, cluster.ErrUnknown) {
		t.Errorf("removing nobody: %v", err)
	}
	if _, err := r.Promote(t.Context(), "m1"); !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "voter already") {
		t.Errorf("promoting a voter: %v", err)
	}
	for name, words := range map[string]string{"a b": "is no name", "m3": "that no other machine can reach"} {
		if _, err := r.Add(t.Context(), name, "https://10.0.0.1:2380"); !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), words) {
			t.Errorf("adding %s: %v", name, err)
		}
	}

	servers[2].Stop()
	v = lookUntil(t, r, "m2 is silent, and the others serve", func(v *cluster.Membership) bool {
		return len(v.Silent()) == 1 && len(v.Serving()) == 2 && v.Leader() != nil
	})
	if m, err := v.Find("m2"); err != nil || m.Status() != cluster.Unreachable || m.Err == nil || m.Answer != nil {
		t.Errorf("m2: %+v, %v", m, err)
	}
	if _, err := r.Remove(t.Context(), "m1"); !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "bring m2 back") {
		t.Errorf("removing one of two that live: %v", err)
	}
	servers[1].Stop()
	v = lookUntil(t, r, "m0 has no leader", func(v *cluster.Membership) bool { return len(v.Silent()) == 2 && len(v.Serving()) == 0 })
	if m, err := v.Find("m0"); err != nil || m.Status() != cluster.Waiting {
		t.Errorf("m0: %+v, %v", m, err)
	}
	if _, err := r.Remove(t.Context(), "m2"); err == nil || errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "1 of its 3 voters answer, and 2 are needed") {
		t.Errorf("a change without a quorum: %v", err)
	}
}

// TestRosterRemoves removes a member that has stopped. (An etcd in the process of the
// test must not be asked once it was removed: it panics.)
func TestRosterRemoves(t *testing.T) {
	t.Parallel()
	servers := etcdtest.Cluster(t, slow)
	r := newRoster(t, servers[0].Endpoint)
	servers[2].Stop()
	lookUntil(t, r, "two serve", func(v *cluster.Membership) bool { return len(v.Serving()) == 2 && v.Leader() != nil })
	if change, err := r.Remove(t.Context(), "m2"); err != nil || change.Member.Name != "m2" || len(change.Warnings) != 0 {
		t.Fatalf("removing the one that is away: %+v, %v", change, err)
	}
	v := lookUntil(t, r, "two are left", func(v *cluster.Membership) bool {
		return len(v.Members) == 2 && len(v.Serving()) == 2 && v.Leader() != nil
	})
	if v.Quorum() != 2 {
		t.Errorf("the quorum of two is %d", v.Quorum())
	}
}

// TestAStrangerIsNamed: a member of another store at the address of one of this does not
// count as that member, and is told by its own name.
func TestAStrangerIsNamed(t *testing.T) {
	t.Parallel()
	servers := etcdtest.Cluster(t, slow)
	r := newRoster(t, servers[0].Endpoint)
	servers[2].Stop()
	lookUntil(t, r, "two serve", func(v *cluster.Membership) bool { return len(v.Serving()) == 2 && len(v.Silent()) == 1 })
	etcdtest.NewServer(t, etcdtest.At(t, servers[2].Endpoint), func(c *embed.Config) {
		c.Name = "newcomer"
		c.InitialCluster = c.InitialClusterFromName(c.Name)
	})
	v := lookUntil(t, r, "m2 is a stranger", func(v *cluster.Membership) bool {
		m, err := v.Find("m2")
		return err == nil && m.Status() == cluster.Stranger
	})
	m, err := v.Find("m2")
	if err != nil || m.Answer != nil || !strings.Contains(m.Err.Error(), "a server that calls itself newcomer answers at its address, and is of another store") {
		t.Errorf("%+v, %v", m, err)
	}
	if len(v.Serving()) != 2 || len(v.Silent()) != 1 {
		t.Errorf("%d serve, %d do not answer", len(v.Serving()), len(v.Silent()))
	}
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	r := newRoster(t, "unix:///no/such/socket")
	v, err := r.Look(t.Context())
	if err == nil || !strings.Contains(err.Error(), "unix:///no/such/socket: ") || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("got %+v, %v", v, err)
	}
}
