package rest_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// serveReplica runs the config API over a replica, and returns a client of it.
func serveReplica(t *testing.T, r *cachetest.Rig) *client.Client {
	t.Helper()
	api, err := rest.New(rest.Options{Store: r.Store, Cache: r.Cache.(*mirror.Cache)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.Handler())
	t.Cleanup(func() { api.EndWatches(); server.Close() })
	c, err := client.New(server.URL, call.Options{HTTP: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// replicas are two servers over one etcd, the second behind a relay. Neither requests
// progress on its own, so a quick answer must come from a caller that waits.
type replicas struct {
	endpoint      string
	relay         *etcdtest.Relay
	rigs          [2]*cachetest.Rig
	first, second *client.Client
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	r := &replicas{endpoint: etcdtest.Listen(t)}
	r.relay = etcdtest.NewRelay(t, r.endpoint)
	for i, at := range []string{r.endpoint, r.relay.Endpoint()} {
		c := etcdtest.Dial(t, at)
		r.rigs[i] = cachetest.NewRig(t, mirrored(t, c))
		r.rigs[i].Start()
	}
	r.first, r.second = serveReplica(t, r.rigs[0]), serveReplica(t, r.rigs[1])
	return r
}

// mirrored is a replica that waits for an hour before it asks for progress by itself.
func mirrored(t testing.TB, c *clientv3.Client) cachetest.Subject {
	t.Helper()
	store, err := etcd.New(c, etcd.Options{Schemas: schema.Pilot(), MaxTxnOps: etcdtest.MaxTxnOps, MaxRequestBytes: etcdtest.MaxRequestBytes, RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	worker := cache.NewWorker()
	return cachetest.Subject{Store: store, Worker: worker, Cache: mirror.New(c, mirror.Options{
		Worker: worker, Schemas: schema.Pilot(), Store: store, ProgressInterval: time.Hour, RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond,
	})}
}

func applyRound(t *testing.T, c *client.Client, round int) (revision int64) {
	t.Helper()
	operation, err := batch.Write(batch.Apply, cachetest.ServiceEntry("a", "x", round))
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.Apply(t.Context(), batch.New(operation))
	if err != nil {
		t.Fatal(err)
	}
	return cachetest.Revision(t, result.Revision)
}

func roundOf(t *testing.T, c *client.Client) (string, error) {
	t.Helper()
	entries := client.Resource(schema.Pilot().Kind(schema.ServiceEntry))
	object, err := c.Get(t.Context(), entries, "a", "x")
	if err != nil {
		return "", err
	}
	return object.GetLabels()["round"], nil
}

// TestReadYourWrites: given the revision that a write returned, any replica shows the
// write or fails with the advice to try again; it never shows an older state.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	for round := range 60 {
		from, to := r.first, r.second
		if round%2 == 1 {
			from, to = to, from
		}
		revision := applyRound(t, from, round)
		if got, err := roundOf(t, to.Fresh(client.Freshness{MinRevision: revision})); err != nil || got != fmt.Sprint(round) {
			t.Fatalf("round %d at revision %d: the other replica shows %q, %v", round, revision, got, err)
		}
	}
	// A revision that changes nothing here brings no event.
	c := etcdtest.Dial(t, r.endpoint)
	var took []time.Duration
	for range 10 {
		answer, err := c.Put(t.Context(), etcd.StatusPrefix+"x", "1")
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		if _, err := roundOf(t, r.second.Fresh(client.Freshness{MinRevision: answer.Header.Revision})); err != nil {
			t.Fatalf("revision %d: %v", answer.Header.Revision, err)
		}
		took = append(took, time.Since(started))
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("an idle replica takes %s to answer", median)
	}
}

func TestReadYourWritesOfAReplicaThatIsCutOff(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	revision := applyRound(t, r.first, 1)
	if _, err := roundOf(t, r.second.Fresh(client.Freshness{MinRevision: revision})); err != nil {
		t.Fatal(err)
	}
	r.relay.HoldRequests()
	r.relay.HoldAnswers()
	revision = applyRound(t, r.first, 2)
	started := time.Now()
	_, err := roundOf(t, r.second.Fresh(client.Freshness{MinRevision: revision}))
	if !call.NotYet(err) || time.Since(started) > 20*time.Second {
		t.Errorf("after %s: %v; want, after 3s, that it is to be tried again", time.Since(started), err)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds == 0 {
		t.Errorf("%v does not say when", err)
	}
	_, err = roundOf(t, r.second.Fresh(client.Freshness{Consistent: true}))
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a consistent read without a store: %v", err)
	}
	if got, err := roundOf(t, r.second); err != nil || got != "1" {
		t.Errorf("a plain read is answered by what is there: %q, %v", got, err)
	}
	r.relay.Release()
	r.rigs[1].Eventually("the write", func() bool {
		got, err := roundOf(t, r.second.Fresh(client.Freshness{MinRevision: revision}))
		return err == nil && got == "2"
	})
}

func TestConsistentReadsNeedNoRevision(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	for round := range 30 {
		applyRound(t, r.first, round)
		if got, err := roundOf(t, r.second.Fresh(client.Freshness{Consistent: true})); err != nil || got != fmt.Sprint(round) {
			t.Fatalf("round %d: the other replica shows %q, %v", round, got, err)
		}
	}
}
