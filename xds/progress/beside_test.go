package progress

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

// inFile is a ServiceEntry of a directory.
func inFile(name, version string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.ServiceEntry, Namespace: "shop", Name: name, Source: "dir", ResourceVersion: version, UID: "of " + name, Generation: 1},
		Spec: &networking.ServiceEntry{Hosts: []string{name + ".example"}, Resolution: networking.ServiceEntry_STATIC},
	}
}

// directoryOf is a snapshot of objects of a directory.
func directoryOf(revision int64, objects ...*config.Config) *cache.Snapshot {
	var configs pmap.Map[*config.Config]
	for _, object := range objects {
		configs = configs.Set(object.Key().Path(), object)
	}
	return cache.NewSnapshot(revision, configs)
}

// follower is a Beside of one source, and what is published of it.
func follower(state *status.SourceState, newest **cache.Snapshot) *Beside {
	return &Beside{
		States: func() []status.SourceState { return []status.SourceState{*state} },
		Newest: func() *cache.Snapshot { return *newest },
	}
}

// TestSourcesAreFollowed: what a random history leaves is what a server that starts at its
// end has, but for the revisions. The parts that stay are the same.
func TestSourcesAreFollowed(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	state, at := &status.SourceState{Name: "dir", Complete: true}, directoryOf(1)
	b := follower(state, &at)
	b.Follow(at)
	for round := range int64(200) {
		configs := at.Configs()
		object := inFile(fmt.Sprint(random.IntN(100)), fmt.Sprintf("f%d", round))
		if path := object.Key().Path(); random.IntN(3) == 0 {
			configs = configs.Delete(path)
		} else {
			configs = configs.Set(path, object)
		}
		before := b.look("a")
		at = at.Next(round+2, cache.Content{Configs: configs})
		b.Follow(at)
		after, differ := b.look("a"), 0
		for path, content := range after.contents {
			if before.contents[path] != content {
				differ++
			}
		}
		if differ > 1 {
			t.Errorf("round %d: one object makes %d parts", round, differ)
		}
	}
	anew := follower(state, &at)
	anew.Follow(at)
	got, want := b.look("a"), anew.look("a")
	if d := cmp.Diff(want.states, got.states); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	forget := cmp.Transformer("unpublished", func(o status.ContentObject) [2]uint64 { return [2]uint64{o.ID, o.Hash} })
	if d := cmp.Diff(want.contents, got.contents, forget); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestASourceIsCompleteOnceItIsPublished: what was read and not published yet is not said
// to be without the objects that come with it.
func TestASourceIsCompleteOnceItIsPublished(t *testing.T) {
	t.Parallel()
	state, newest := &status.SourceState{Name: "dir", Complete: true}, directoryOf(1, inFile("a", "f1"))
	b := follower(state, &newest)
	b.Follow(directoryOf(1))
	if b.look("x").states[0].Complete {
		t.Error("it is complete before it is published")
	}
	b.Follow(newest)
	if !b.look("x").states[0].Complete {
		t.Error("it is not complete when it is published")
	}
	newest = directoryOf(2, inFile("a", "f2")) // on its way
	if !b.look("x").states[0].Complete {
		t.Error("it is not complete any more while a change is on its way")
	}
	state.Complete = false
	if b.look("x").states[0].Complete {
		t.Error("it is complete and cannot be read")
	}
	state.Complete = true
	if b.look("x").states[0].Complete {
		t.Error("it is complete before the change is published")
	}
	if none := (&Beside{}).look("x"); len(none.states) > 0 {
		t.Errorf("a server without sources has %v", none.states)
	}
}

// TestSourcesAreReported: what is stored is what there is, under any lease, and what stays
// is not written again.
func TestSourcesAreReported(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	store, err := etcd.New(client, etcd.Options{Schemas: schema.Pilot()})
	if err != nil {
		t.Fatal(err)
	}
	state, at := &status.SourceState{Name: "/etc/mesh", Complete: true}, directoryOf(1)
	b := follower(state, &at)
	r := &Reporter{ID: "host:1/x", Client: client, Store: store, Logger: slog.New(slog.DiscardHandler), Beside: b}
	object := func(name, version string) *config.Config {
		out := inFile(name, version)
		out.Source = "/etc/mesh"
		return out
	}
	report := func(objects ...*config.Config) (revision int64) {
		t.Helper()
		at = directoryOf(at.Revision()+1, objects...)
		b.Follow(at)
		due := b.look(r.ID)
		if err := b.write(t.Context(), r, due); err != nil {
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
			got[string(kv.Key[len(etcd.ContentPrefix):])] = content
		}
		if d := cmp.Diff(due.contents, got); d != "" {
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
		if d := cmp.Diff(&status.Sources{Replica: r.ID, States: due.states}, sources); d != "" {
			t.Errorf("sources (-want +got):\n%s", d)
		}
		return one.Header.Revision
	}
	lease := func() {
		granted, err := client.Grant(t.Context(), 60)
		if err != nil {
			t.Fatal(err)
		}
		r.lease = granted.ID
	}
	if err := b.write(t.Context(), r, b.look(r.ID)); err != nil || r.Store.Version() != "" && r.Store.Version() != "0" {
		t.Errorf("something was written without a lease: %v", err)
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
