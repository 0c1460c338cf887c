package progress

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
)

// looker lets a Writer's queue look at a store once a second, and counts its writes.
type looker struct {
	t      *testing.T
	stored stored
	queue  *statusQueue
	mesh   *mesh.PushContext
	judged *index.Index
	now    time.Time
	writes int // of all looks
	// proxies are the known ones.
	proxies pmap.Map[*status.Proxy]
}

func newLooker(t *testing.T) *looker {
	return &looker{t: t, queue: newStatusQueue(), mesh: mesh.New(mesh.Inputs{Configs: (&stored{}).snapshot()}), now: noon}
}

// look lets a second pass, and returns how many writes it brought.
func (l *looker) look(facts *statuses.Reports) int {
	l.t.Helper()
	l.now = l.now.Add(time.Second)
	at := l.stored.snapshot()
	l.mesh = l.mesh.Next(mesh.Inputs{Configs: at})
	l.judged = l.judged.Next(verdict.Facts{Mesh: l.mesh, Proxies: l.proxies})
	l.queue.follow(inputsOf(at, facts, l.judged), l.now)
	writes := l.queue.due(l.now)
	if len(writes) > maxWrites {
		l.t.Fatalf("%d writes at once", len(writes))
	}
	for _, w := range writes {
		l.stored.revision++
		if w.Report == nil {
			l.stored.statuses = l.stored.statuses.Delete(w.Path)
			continue
		}
		value, err := etcd.EncodeStatus(w.Report)
		if err != nil {
			l.t.Fatal(err)
		}
		key := etcd.ObjectStatusPrefix + w.Path
		report, err := etcd.DecodeStatus(&mvccpb.KeyValue{Key: []byte(key), Value: value, ModRevision: l.stored.revision}, schema.Pilot())
		if err != nil {
			l.t.Fatal(err)
		}
		l.stored.statuses = l.stored.statuses.Set(w.Path, report)
	}
	l.writes += len(writes)
	return len(writes)
}

// looks lets seconds pass, and returns how many writes they brought.
func (l *looker) looks(seconds int, facts *statuses.Reports) int {
	l.t.Helper()
	n := 0
	for range seconds {
		n += l.look(facts)
	}
	return n
}

// says returns the status and the reason of a condition of an object; empty for none.
func (l *looker) says(o *config.Config, typ string) string {
	if r := l.stored.statuses.Value(o.Key().Path()); r != nil {
		for _, c := range r.Conditions {
			if c.Type == typ {
				return c.Status + " " + c.Reason
			}
		}
	}
	return ""
}

// using makes the facts of a server with one proxy, which uses and has all the objects.
// Without objects the proxy is not concerned by any change.
func using(objects ...*config.Config) *statuses.Reports {
	count := status.Count{NotConcerned: 1}
	if len(objects) > 0 {
		count = status.Count{Accepted: 1}
	}
	facts := factsOf(&status.Replica{ID: "a", ReportsUse: true, Proxies: 1, Changes: []status.Change{change(0, 1e6, count)}})
	parts := map[int]*status.Use{}
	for _, o := range objects {
		id := status.ObjectID(o.Key())
		part := status.UsePart(id)
		if parts[part] == nil {
			parts[part] = &status.Use{Replica: "a", Part: part}
		}
		parts[part].Objects = append(parts[part].Objects, id)
	}
	for part, use := range parts {
		slices.Sort(use.Objects)
		facts.Uses = facts.Uses.Set(fmt.Sprint("a/", part), use)
	}
	return facts
}

// TestProgrammedFollowsTheProxies: an object is Unknown while no proxy uses it, and True
// when one comes. A proxy that is away for a moment changes nothing.
func TestProgrammedFollowsTheProxies(t *testing.T) {
	t.Parallel()
	l := newLooker(t)
	o, other := object("reviews", 10), object("ratings", 11)
	l.stored.put(o)
	l.stored.put(other)
	is := func(when, want string, writes int) {
		t.Helper()
		if got := l.says(o, status.Programmed); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
		if l.writes != writes {
			t.Errorf("%s: %d writes, want %d", when, l.writes, writes)
		}
		if got := l.says(other, status.Programmed); got != "Unknown NoProxies" {
			t.Errorf("%s: the other is %q", when, got)
		}
	}
	nobody := using()
	l.looks(2, nobody)
	is("no proxy uses it", "Unknown NoProxies", 2)
	l.look(using(o))
	is("one comes", "True Acknowledged", 3)
	for range 100 { // and goes and comes again
		l.looks(5, nobody)
		l.looks(5, using(o))
	}
	is("it comes and goes", "True Acknowledged", 3)
	l.looks(int(leaveTime/time.Second), nobody)
	is("it has been gone for less than leaveTime", "True Acknowledged", 3)
	l.look(nobody)
	is("it is gone", "Unknown NoProxies", 4)
	if n := l.looks(300, nobody); n > 0 || len(l.queue.pending) > 0 || !l.queue.idle {
		t.Errorf("%d writes while nothing happens, %d are pending, idle %v", n, len(l.queue.pending), l.queue.idle)
	}

	// A new write of the object is reported at once.
	o = object("reviews", 30)
	l.stored.put(o)
	l.look(using(o))
	is("it is written", "True Acknowledged", 5)
	o = object("reviews", 31)
	l.stored.put(o)
	l.look(nobody)
	is("it is written so that no proxy uses it", "Unknown NoProxies", 6)

	// A new leader goes by what is stored.
	l.queue = newStatusQueue()
	l.looks(3, nobody)
	is("another leader", "Unknown NoProxies", 6)
	l.queue = newStatusQueue()
	l.looks(3, using(o))
	is("another leader, and a proxy", "True Acknowledged", 7)
	l.queue = newStatusQueue()
	l.looks(3, nobody)
	is("another leader, and a moment without a proxy", "True Acknowledged", 7)
	l.looks(int(leaveTime/time.Second), nobody)
	is("another leader, and no proxy", "Unknown NoProxies", 8)
}

// TestAServerThatReportsNoUse: while a server of an older version has proxies, any object
// may be in use.
func TestAServerThatReportsNoUse(t *testing.T) {
	t.Parallel()
	l := newLooker(t)
	o := object("reviews", 10)
	l.stored.put(o)
	older := factsOf(&status.Replica{ID: "b", Proxies: 1, Changes: []status.Change{change(0, 1e6, status.Count{Accepted: 1})}})
	l.looks(2, older)
	if got := l.says(o, status.Programmed); got != "True Acknowledged" {
		t.Errorf("beside an older server: %q", got)
	}
	l.looks(int(leaveTime/time.Second)+2, using())
	if got := l.says(o, status.Programmed); got != "Unknown NoProxies" {
		t.Errorf("without it: %q", got)
	}
}

// TestAStormOfVerdictsIsFewWrites: 1,000 verdicts that come and go with every look are
// written once in calmTime for each object. After the storm the statuses are right.
func TestAStormOfVerdictsIsFewWrites(t *testing.T) {
	t.Parallel()
	const objects, flips = 1000, 35
	l := newLooker(t)
	var all []*config.Config
	for i := range objects {
		o := object(fmt.Sprintf("o%04d", i), int64(1+i))
		o.Spec = &networking.VirtualService{Hosts: []string{fmt.Sprintf("h%d.example", i)}, Gateways: []string{"edge"}}
		all = append(all, o)
		l.stored.put(o)
	}
	gateway := object("edge", 5000)
	gateway.GroupVersionKind, gateway.Spec = schema.Gateway, &networking.Gateway{Servers: []*networking.Server{{
		Port: &networking.Port{Number: 80, Name: "http", Protocol: "HTTP"}, Hosts: []string{"*"},
	}}}
	here := func(is bool) {
		if path := gateway.Key().Path(); is {
			l.stored.configs = l.stored.configs.Set(path, gateway)
		} else {
			l.stored.configs = l.stored.configs.Delete(path)
		}
		l.stored.revision++
	}
	used := using(append(all, gateway)...)
	here(true)
	l.looks(10, used)
	if n := l.looks(10, used); n > 0 || l.says(all[7], status.ResolvedRefs) != "" {
		t.Fatalf("%d writes where nothing is odd, %s", n, l.says(all[7], status.ResolvedRefs))
	}

	// All verdicts come at once, and are written within a few looks.
	here(false)
	if n := l.looks(10, used); n < objects || n > objects+1 || l.says(all[7], status.ResolvedRefs) != "False PTL0103" {
		t.Errorf("%d writes for %d verdicts, %s", n, objects, l.says(all[7], status.ResolvedRefs))
	}
	storm := 0
	for i := range flips {
		here(i%2 == 0)
		storm += l.look(used)
	}
	gateways := flips // the Gateway itself is written anew
	if bound := objects*(flips/int(calmTime/time.Second)+1) + gateways; storm > bound {
		t.Errorf("%d writes for %d verdicts that changed %d times, want at most %d", storm, objects, flips, bound)
	}
	t.Logf("%d verdicts that changed %d times: %d writes", objects, flips, storm)
	here(true)
	l.looks(20, used)
	if n := l.looks(10, used); n > 0 || l.says(all[7], status.ResolvedRefs) != "" {
		t.Errorf("%d writes after the storm, %s", n, l.says(all[7], status.ResolvedRefs))
	}
	for _, o := range all {
		if l.says(o, status.ResolvedRefs) != "" {
			t.Fatalf("%s: %s", o.Name, l.says(o, status.ResolvedRefs))
		}
	}
}

// TestUsage: an object is in use if any server uses it, and changedSince finds the objects
// whose use changed between two looks.
func TestUsage(t *testing.T) {
	t.Parallel()
	a, b := object("a", 1), object("b", 2)
	inputsFrom := func(facts *statuses.Reports) *inputs { return inputsOf(nil, facts, nil) }
	one := inputsFrom(using(a))
	if !one.usage.has(status.ObjectID(a.Key())) || one.usage.has(status.ObjectID(b.Key())) || (&usage{}).has(status.ObjectID(a.Key())) {
		t.Errorf("%+v", one.usage)
	}
	if one.same(inputsFrom(using(a))) {
		t.Error("other facts are taken for the same")
	}
	if !one.same(inputsFrom(one.facts)) {
		t.Error("the same facts are taken for others")
	}
	if ids := inputsFrom(using(b)).changedSince(one); len(ids) != 2 || !ids[status.ObjectID(a.Key())] {
		t.Errorf("%v", ids)
	}
	elsewhere := using(a)
	elsewhere.Uses = pmap.Map[*status.Use]{}
	for use := range using(a).Uses.Values() {
		elsewhere.Uses = elsewhere.Uses.Set("b/0", &status.Use{Replica: "b", Part: use.Part, Objects: use.Objects})
	}
	if ids := inputsFrom(elsewhere).changedSince(one); len(ids) > 0 {
		t.Errorf("used on another server instead: %v", ids)
	}
}

// TestAnotherStoreIsLookedAtAnew: when the store is replaced, such as by an older state of
// itself, its statuses are checked though no object differs.
func TestAnotherStoreIsLookedAtAnew(t *testing.T) {
	t.Parallel()
	l := newLooker(t)
	o := object("reviews", 10)
	l.stored.put(o)
	l.looks(2, using())
	older, used := l.stored.statuses, using(o)
	l.looks(2, used)
	if got := l.says(o, status.Programmed); got != "True Acknowledged" {
		t.Fatalf("a proxy uses it: %q", got)
	}
	l.stored.epoch, l.stored.statuses = 1, older
	l.looks(2, used)
	if got := l.says(o, status.Programmed); got != "True Acknowledged" {
		t.Errorf("the store has the older status again: %q", got)
	}
}
