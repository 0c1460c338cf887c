package progress

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/beside"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// follower makes the Sources of a server that has one source, from its state and its newest
// snapshot.
func follower(state *status.SourceState, newest **cache.Snapshot) *beside.Sources {
	return &beside.Sources{
		States: func() []status.SourceState { return []status.SourceState{*state} },
		Newest: func() *cache.Snapshot { return *newest },
	}
}

// TestReportsOfFormerRuns: a server withdraws what a server that has ended left, and nothing of one
// that runs.
func TestReportsOfFormerRuns(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	left := func(id string) {
		lease, err := client.Grant(t.Context(), 60)
		if err != nil {
			t.Fatal(err)
		}
		value, err := etcd.EncodeReplica(&status.Replica{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{etcd.ReplicaKey(id), etcd.UseKey(id, 1), etcd.SourcesKey(id)} {
			if _, err := client.Put(t.Context(), key, string(value), clientv3.WithLease(lease.ID)); err != nil {
				t.Fatal(err)
			}
		}
	}
	left("here:1/a")
	left("there:1/b")
	r := &Reporter{ID: "here:2/c", Client: client, Former: func(id string) bool { return id == "here:1/a" }}
	if err := r.withdrawFormer(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := client.Get(t.Context(), etcd.StatusPrefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Kvs) != 3 {
		t.Errorf("%d entries are left, want those of the other server: %v", len(all.Kvs), all.Kvs)
	}
	for _, kv := range all.Kvs {
		if !strings.Contains(string(kv.Key), "there") {
			t.Errorf("%s is left", kv.Key)
		}
	}
}

// TestSourcesAreReported: the stored report equals the sources, also under a new lease, and
// what has not changed is not written again.
func TestSourcesAreReported(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store, err := etcd.New(client, etcd.Options{Schemas: schema.Pilot()})
	if err != nil {
		t.Fatal(err)
	}
	state, at := &status.SourceState{Name: "/etc/mesh", Complete: true}, cachetest.DirectoryOf(1)
	b := follower(state, &at)
	r := &Reporter{ID: "host:1/x", Client: client, Board: store, Logger: slog.New(slog.DiscardHandler), Beside: b}
	object := func(name, version string) *config.Config {
		out := cachetest.InFile(name, version)
		out.Source = "/etc/mesh"
		return out
	}
	report := func(objects ...*config.Config) (revision int64) {
		t.Helper()
		at = cachetest.DirectoryOf(at.Revision()+1, objects...)
		b.Follow(at)
		due := b.Report(r.ID)
		rows, err := sourceRows(r.ID, due)
		if err == nil {
			err = r.write(t.Context(), rows)
		}
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Get(t.Context(), etcd.ContentPrefix, clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]*status.Content{}
		for _, kv := range answer.Kvs {
			content, err := etcd.DecodeContent(kv)
			if err != nil {
				t.Fatal(err)
			}
			got[string(kv.Key)] = content
		}
		if d := cmp.Diff(due.Contents, got); d != "" {
			t.Errorf("contents (-want +got):\n%s", d)
		}
		one, err := client.Get(t.Context(), etcd.SourcesKey(r.ID))
		if err != nil || len(one.Kvs) != 1 {
			t.Fatal(one, err)
		}
		sources, err := etcd.DecodeSources(one.Kvs[0])
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&status.Sources{Replica: r.ID, States: due.States}, sources); d != "" {
			t.Errorf("sources (-want +got):\n%s", d)
		}
		return one.Header.Revision
	}
	lease := func() {
		granted, err := client.Grant(t.Context(), 60)
		if err != nil {
			t.Fatal(err)
		}
		r.lease, r.written = granted.ID, map[string]any{}
	}
	lease()
	a := object("a", "f1")
	before := report(a, object("b", "f1"))
	if after := report(at.Get(a.Key()), at.Get(object("b", "").Key())); after != before {
		t.Errorf("what stays was written at %d, after %d", after, before)
	}
	report(a)
	report(object("a", "f2"), object("c", "f1"))
	if _, err := client.Revoke(t.Context(), r.lease); err != nil {
		t.Fatal(err)
	}
	lease()
	report(at.Get(a.Key()))
	report(object("a", "f3"))
	report()
}

// having makes the facts of servers that have some version of an object of a file, each
// with some proxies. A server with an empty version lacks the object.
func having(used bool, o *config.Config, servers map[string]string, now status.Count) *statuses.Reports {
	facts := using()
	if used {
		facts = using(o)
	}
	facts.Replicas = pmap.Map[*status.Replica]{}
	for id, version := range servers {
		facts.Replicas = facts.Replicas.Set(id, &status.Replica{ID: id, ReportsUse: true, Proxies: now.Proxies(), Now: now})
		facts.Sources = facts.Sources.Set(id, &status.Sources{Replica: id, States: []status.SourceState{{Name: "dir", Complete: true}}})
		key := status.ObjectID(o.Key())
		if version != "" {
			facts.Contents = facts.Contents.Set(etcd.ContentPath(id, "dir", status.UsePart(key)), &status.Content{
				Replica: id, Source: "dir", Part: status.UsePart(key), Objects: []status.ContentObject{{ID: key, Hash: status.VersionHash(version)}},
			})
		}
	}
	return facts
}

// TestConditionsOfAnObjectOfAFile follow its content on all servers.
func TestConditionsOfAnObjectOfAFile(t *testing.T) {
	t.Parallel()
	l := newLooker(t)
	o := cachetest.InFile("db", "f1")
	l.stored.put(o)
	is := func(when, want string) {
		t.Helper()
		if got := l.says(o, status.Programmed); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	took := status.Count{Accepted: 2}
	both := having(true, o, map[string]string{"a": "f1", "b": "f1"}, took)
	l.looks(10, both)
	is("both have it", "True Acknowledged")
	if got := l.says(o, status.Accepted); got != "True Valid" {
		t.Errorf("it is %q", got)
	}
	if r := l.stored.statuses.Value(o.Key().Path()); r.Version != "f1" || r.Object != 0 || r.Conditions[1].Message != "4 of 4 connected proxies have all that is made of it" {
		t.Errorf("the report is %+v", r)
	}
	if n := l.looks(20, both); n != 0 {
		t.Errorf("%d writes of nothing", n)
	}
	l.looks(10, having(true, o, map[string]string{"a": "f1", "b": "f0"}, took))
	is("one has another content", "False Waiting")
	l.looks(10, having(true, o, map[string]string{"a": "f1", "b": "f1"}, status.Count{Accepted: 1, Waiting: 1}))
	is("a proxy has not answered", "False Waiting")
	l.looks(10, both)
	is("both have it again", "True Acknowledged")

	o = cachetest.InFile("db", "f2")
	l.stored.put(o)
	l.looks(10, both)
	is("it has changed, and no report tells of it", "False Waiting")
	l.looks(10, having(false, o, map[string]string{"a": "f2", "b": "f2"}, took))
	is("nobody uses it", "Unknown NoProxies")
	refused := having(true, o, map[string]string{"a": "f2"}, status.Count{Accepted: 1, Rejected: 1})
	l.looks(10, refused)
	is("a proxy refuses another", "True Acknowledged")
	a := *refused.Replicas.Value("a")
	a.Problems = []status.Problem{{Node: "edge", Type: "CDS", Rejected: true, RejectedRevision: 3, Message: "bad", Objects: []string{o.Key().Path()}}}
	accused := *refused
	accused.Replicas = accused.Replicas.Set("a", &a)
	l.looks(10, &accused)
	is("a proxy refuses it", "False Refused")

	// The leader no longer has the object, but another server does: the status stays.
	l.stored.configs = l.stored.configs.Delete(o.Key().Path())
	l.looks(3, having(true, o, map[string]string{"a": "", "b": "f2"}, took))
	is("another server has it", "False Refused")
	unread := having(true, o, map[string]string{"a": ""}, took)
	unread.Sources = unread.Sources.Set("b", &status.Sources{Replica: "b", States: []status.SourceState{{Name: "dir"}}})
	unread.Replicas = unread.Replicas.Set("b", &status.Replica{ID: "b"})
	l.looks(3, unread)
	is("another server cannot read its directory", "False Refused")
	l.queue = newStatusQueue() // another leader
	l.looks(3, unread)
	is("another leader does not have it", "False Refused")
	l.looks(3, having(true, o, map[string]string{"a": "", "b": ""}, took))
	is("nobody has it", "")
}
