package progress

import (
	"maps"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/status"
)

// TestWhoDepartsIsNotExpectedBack: of the proxies that leave a server, those whose machines have said so
// are stored as such, and are nowhere waited for. One that is back may leave without a word.
func TestWhoDepartsIsNotExpectedBack(t *testing.T) {
	t.Parallel()
	facts := &statuses.Reports{}
	facts.Replicas = facts.Replicas.Set(etcd.ReplicaKey("a")[len(etcd.ReplicaPrefix):], &status.Replica{ID: "a"})
	know := func(p *status.Proxy) {
		facts.Proxies = facts.Proxies.Set(etcd.ProxyKey(p.Node)[len(etcd.ProxyPrefix):], p)
	}
	for _, node := range []string{"departs", "is lost", "is back", "stays"} {
		know(&status.Proxy{Node: node, Replica: "a", Seen: time.Now()})
	}
	var d Departures
	d.Add("departs")
	d.Add("is back")
	d.Return("is back")
	d.Add("stays") // it drains
	tally := NewTally(1, 1, nil, []Proxy{{Proxy: &discovery.Proxy{ID: "stays"}}}, nil, d.Nodes())
	expectReturning := func(when string) {
		t.Helper()
		got := map[string]bool{}
		for _, place := range (&View{ID: "a"}).gone(tally, facts) {
			got[place.Node] = place.Returning
		}
		if want := map[string]bool{"departs": false, "is lost": true, "is back": true}; !maps.Equal(got, want) {
			t.Errorf("%s, expected back are %v", when, got)
		}
	}
	expectReturning("before the report")
	writes, err := (&Reporter{ID: "a"}).proxyWrites(tally, facts)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range writes {
		p, err := etcd.DecodeProxy(&mvccpb.KeyValue{Key: []byte(w.Key), Value: w.Value})
		if err != nil {
			t.Fatal(err)
		}
		if p.Departed != (p.Node == "departs") || (p.Replica == "") == (p.Node == "stays") {
			t.Errorf("stored is %+v", p)
		}
		know(p)
	}
	expectReturning("after it")
}
