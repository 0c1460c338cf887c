package serve

import (
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/status"
)

// reported holds facts as servers report them about their sources.
type reported struct{ statuses.Reports }

// server adds a live server. It reports its sources unless states is nil.
func (r *reported) server(id string, states ...status.SourceState) {
	r.Replicas = r.Replicas.Set(id, &status.Replica{ID: id})
	if states != nil {
		r.Sources = r.Sources.Set(id, &status.Sources{Replica: id, States: states})
	}
}

// has adds a host to a source of a server.
func (r *reported) has(id, source, namespace, host string) {
	r.Contents = r.Contents.Set(etcd.ContentPath(id, source, 0), &status.Content{
		Replica: id, Source: source, Hosts: []uint64{status.HostID(namespace, host)},
	})
}

// TestWhatNoServerNeedsIsFreed: an address is freed after the hold, and only if every live
// server reports that it has read the whole source and that the host is not in it.
func TestWhatNoServerNeedsIsFreed(t *testing.T) {
	t.Parallel()
	const dir = "/etc/mesh"
	whole, broken := status.SourceState{Name: dir, Complete: true}, status.SourceState{Name: dir}
	none := []status.SourceState{}
	for name, c := range map[string]struct {
		build func(*reported)
		freed bool
	}{
		"all have read it without the host": {func(r *reported) { r.server("a", whole); r.server("b", whole) }, true},
		"one has the host":                  {func(r *reported) { r.server("a", whole); r.server("b", whole); r.has("b", dir, "shop", "db") }, false},
		"one cannot read it":                {func(r *reported) { r.server("a", whole); r.server("b", broken) }, false},
		"one has not reported":              {func(r *reported) { r.server("a", whole); r.server("b") }, false},
		"one has no such source":            {func(r *reported) { r.server("a", whole); r.server("b", none...) }, true},
		"none has such a source":            {func(r *reported) { r.server("a", none...) }, true},
		"another host, and another source": {func(r *reported) {
			r.server("a", whole, status.SourceState{Name: "/srv"})
			r.has("a", dir, "shop", "web")
			r.has("a", "/srv", "shop", "db")
		}, true},
		"the host in another namespace": {func(r *reported) { r.server("a", whole); r.has("a", dir, "other", "db") }, true},
		"no server is known":            {func(*reported) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := &reported{}
			c.build(facts)
			owners := map[address.Key][]string{{Namespace: "shop", Host: "db"}: {"entry", address.OwnerOf(dir)}, {Namespace: "shop", Host: "x"}: {"entry"}}
			f, begun := newFreer(time.Hour), time.Now()
			if !f.pending(&facts.Reports, begun) && facts.Sources.Len() > 0 {
				t.Error("the first look would not be")
			}
			if claims := f.claimsToFree(owners, &facts.Reports, begun); len(claims) > 0 {
				t.Fatalf("freed at once: %v", claims)
			}
			if f.pending(&facts.Reports, begun.Add(time.Minute)) {
				t.Error("there is something to look at within the hold")
			}
			due := begun.Add(time.Hour)
			if got := f.pending(&facts.Reports, due); got != c.freed {
				t.Errorf("after the hold there is something to look at: %v", got)
			}
			claims := f.claimsToFree(owners, &facts.Reports, due)
			if freed := len(claims) == 1 && len(claims[0].Drop) == 1 && claims[0].Drop[0] == address.OwnerOf(dir); freed != c.freed {
				t.Errorf("after the hold: %v", claims)
			}
		})
	}
}

// TestTheHoldBeginsAnew: a host that comes back during the hold counts as never gone.
func TestTheHoldBeginsAnew(t *testing.T) {
	t.Parallel()
	state := status.SourceState{Name: "dir", Complete: true}
	without, with := &reported{}, &reported{}
	without.server("a", state)
	with.server("a", state)
	with.has("a", "dir", "shop", "db")
	owners := map[address.Key][]string{{Namespace: "shop", Host: "db"}: {address.OwnerOf("dir")}}
	f, at := newFreer(time.Hour), time.Now()
	for i, step := range []struct {
		facts *reported
		after time.Duration
		freed int
	}{{without, 0, 0}, {with, 59 * time.Minute, 0}, {without, 61 * time.Minute, 0}, {without, 120 * time.Minute, 0}, {without, 121 * time.Minute, 1}} {
		if claims := f.claimsToFree(owners, &step.facts.Reports, at.Add(step.after)); len(claims) != step.freed {
			t.Errorf("step %d: %v", i, claims)
		}
	}
}
