package progress

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/status"
)

func TestElsewhere(t *testing.T) {
	t.Parallel()
	f := &statuses.Reports{}
	for _, r := range []*status.Replica{{ID: "cp-1:7/a", API: "127.0.0.1:15080"}, {ID: "cp-2:8/b", API: "127.0.0.1:15081"}} {
		f.Replicas = f.Replicas.Set(etcd.ReplicaKey(r.ID)[len(etcd.ReplicaPrefix):], r)
	}
	seen := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for node, replica := range map[string]string{"here": "cp-1:7/a", "there": "cp-2:8/b", "gone": "", "left a moment ago": "", "of a server that died": "cp-3:9/c"} {
		f.Proxies = f.Proxies.Set(node, &status.Proxy{Node: node, Replica: replica, Seen: seen})
	}
	moment := seen.Add(59 * time.Minute)
	f.Proxies = f.Proxies.Set("left a moment ago", &status.Proxy{Node: "left a moment ago", Seen: moment})
	f.Proxies = f.Proxies.Set("departed a moment ago", &status.Proxy{Node: "departed a moment ago", Seen: moment, Departed: true})
	got := map[string]Place{}
	for _, p := range elsewhere("cp-1:7/a", f, seen.Add(time.Hour)) {
		got[p.Node] = p
	}
	want := map[string]Place{
		"here": {Node: "here", Seen: seen, Returning: true}, "gone": {Node: "gone", Seen: seen}, "of a server that died": {Node: "of a server that died", Seen: seen, Returning: true},
		"departed a moment ago": {Node: "departed a moment ago", Seen: moment},
		"left a moment ago":     {Node: "left a moment ago", Seen: moment, Returning: true},
		"there":                 {Node: "there", Server: "cp-2:8/b", API: "http://127.0.0.1:15081", Seen: seen},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
