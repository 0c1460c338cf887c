package progress

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func object(name string, revision int64) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.VirtualService, Namespace: "shop", Name: name, UID: "uid-" + name,
			Generation: 3, ResourceVersion: strconv.FormatInt(revision, 10)},
		Spec: &networking.VirtualService{},
	}
}

func factsOf(replicas ...*status.Replica) *statuses.Reports {
	f := &statuses.Reports{}
	for _, r := range replicas {
		f.Replicas = f.Replicas.Set(r.ID, r)
	}
	return f
}

func change(from, to int64, c status.Count) status.Change {
	return status.Change{From: from, To: to, Alone: c, All: c}
}

// TestSay checks the reports of an object that was written at revision 10.
func TestSay(t *testing.T) {
	t.Parallel()
	path := object("reviews", 10).Key().Path()
	refused := status.Problem{Node: "edge", Type: "LDS", Revision: 9, Rejected: true, RejectedRevision: 10, Message: "no port"}
	accused := refused
	accused.Objects = []string{"another"}
	notBuilt := status.Problem{Type: "CDS", Rejected: true, RejectedRevision: 10, Message: "c: too long", Objects: []string{path}}
	accusedBy := func(node string) status.Problem {
		accused := accused
		accused.Node = node
		return accused
	}
	named := status.Problem{Node: "edge", Type: "RDS", Revision: 20, Rejected: true, RejectedRevision: 30, Resource: "outbound", Message: "bad regex", Objects: []string{path}}
	for name, c := range map[string]struct {
		facts      *statuses.Reports
		programmed string // status, reason and message
		rejected   string // message
		settled    bool
	}{
		"nobody has reported": {factsOf(), "False Waiting 0 of 0 proxies concerned have acknowledged it, servers that have not published it yet: 1", "", false},
		"taken by all": {factsOf(&status.Replica{ID: "a", Changes: []status.Change{change(9, 10, status.Count{Accepted: 2, NotConcerned: 3})}}),
			"True Acknowledged 2 of 2 proxies concerned have acknowledged it", "", true},
		"of two servers": {factsOf(
			&status.Replica{ID: "a", Changes: []status.Change{change(5, 12, status.Count{Accepted: 2})}},
			&status.Replica{ID: "b", Changes: []status.Change{change(5, 9, status.Count{Rejected: 9}), change(9, 10, status.Count{Accepted: 1, Waiting: 1})}}),
			"False Waiting 3 of 4 proxies concerned have acknowledged it, waiting for 1", "", false},
		"one has not published": {factsOf(
			&status.Replica{ID: "a", Changes: []status.Change{change(5, 12, status.Count{Accepted: 2})}},
			&status.Replica{ID: "b", Changes: []status.Change{change(5, 9, status.Count{Accepted: 1})}}),
			"False Waiting 2 of 2 proxies concerned have acknowledged it, servers that have not published it yet: 1", "", false},
		"nobody is concerned": {factsOf(&status.Replica{ID: "a", Changes: []status.Change{change(9, 10, status.Count{NotConcerned: 3})}}),
			"True NotConcerned none of the 3 proxies that were connected is concerned", "", true},
		"it changed nothing there": {factsOf(&status.Replica{ID: "a", Proxies: 4, Changes: []status.Change{change(1, 5, status.Count{Rejected: 1}), change(10, 11, status.Count{Rejected: 1})}}),
			"True NotConcerned none of the 4 proxies that were connected is concerned", "", true},
		"long ago": {factsOf(&status.Replica{ID: "a", Changes: []status.Change{change(50, 60, status.Count{Accepted: 1, NotConcerned: 1})}}),
			"True Acknowledged 1 of 1 proxies concerned have acknowledged it", "", true},
		"refused": {factsOf(&status.Replica{ID: "a", Changes: []status.Change{change(9, 10, status.Count{Accepted: 1, Rejected: 1})}, Problems: []status.Problem{refused}}),
			"False Refused 1 of 2 proxies concerned have acknowledged it, refused by 1", "edge LDS: no port", false},
		"refused for another": {factsOf(&status.Replica{ID: "a", Changes: []status.Change{change(9, 10, status.Count{Accepted: 1, Rejected: 1})}, Problems: []status.Problem{accused}}),
			"True Acknowledged 2 of 2 proxies concerned have acknowledged it", "", false},
		"refused, and by another proxy for another": {factsOf(&status.Replica{ID: "a", Changes: []status.Change{change(9, 10, status.Count{Rejected: 2})}, Problems: []status.Problem{accusedBy("client"), refused}}),
			"False Refused 1 of 2 proxies concerned have acknowledged it, refused by 1", "edge LDS: no port", false},
		"refused, and another with it": {factsOf(&status.Replica{ID: "a", Changes: []status.Change{change(9, 10, status.Count{Rejected: 1})}, Problems: []status.Problem{accused, named}}),
			"False Refused 0 of 1 proxies concerned have acknowledged it, refused by 1", "edge RDS outbound: bad regex", false},
		"refused later": {factsOf(&status.Replica{ID: "a", Changes: []status.Change{change(9, 10, status.Count{Accepted: 2})}, Problems: []status.Problem{named}}),
			"False Refused 1 of 2 proxies concerned have acknowledged it, refused by 1", "edge RDS outbound: bad regex", false},
		"not built": {factsOf(
			&status.Replica{ID: "a", Changes: []status.Change{change(9, 10, status.Count{Accepted: 2})}, Problems: []status.Problem{notBuilt}},
			&status.Replica{ID: "b", Changes: []status.Change{change(9, 10, status.Count{Accepted: 1})}, Problems: []status.Problem{notBuilt}}),
			"False NotBuilt 3 of 3 proxies concerned have acknowledged it", "not built, proxies keep its last good form: CDS c: too long (PTL0131)", false},
		"not built, and refused": {factsOf(&status.Replica{ID: "a", Changes: []status.Change{change(9, 10, status.Count{Accepted: 2})}, Problems: []status.Problem{named, notBuilt}}),
			"False NotBuilt 1 of 2 proxies concerned have acknowledged it, refused by 1", "not built, proxies keep its last good form: CDS c: too long (PTL0131); edge RDS outbound: bad regex", false},
	} {
		report, settled := makeReport(object("reviews", 10), nil, evidence{facts: c.facts, used: true}, noon)
		if p := report.Conditions[1]; fmt.Sprintf("%s %s %s", p.Status, p.Reason, p.Message) != c.programmed {
			t.Errorf("%s: %+v", name, p)
		}
		if said := messageOf(report, status.Rejected); said != c.rejected || settled != c.settled || report.Object != 10 || report.Generation != 3 || report.UID != "uid-reviews" {
			t.Errorf("%s: settled %v, %+v", name, settled, report)
		}
		if again, _ := makeReport(object("reviews", 10), report, evidence{facts: c.facts, used: true}, noon.Add(time.Hour)); !sameContent(again, report) {
			t.Errorf("%s: an hour later: %+v", name, again)
		}
	}
}

// messageOf returns the message of a condition that is True; empty if it is not there.
func messageOf(r *status.Report, typ string) string {
	for _, c := range r.Conditions {
		if c.Type == typ && c.Status == status.True {
			return c.Message
		}
	}
	return ""
}

// TestTheReportOfAnUnusedObject: Programmed is Unknown for an object that no proxy uses,
// unless proxies wait for the change or reject it.
func TestTheReportOfAnUnusedObject(t *testing.T) {
	t.Parallel()
	factsWith := func(c status.Count) *statuses.Reports {
		return factsOf(&status.Replica{ID: "a", ReportsUse: true, Proxies: c.Proxies(), Changes: []status.Change{change(9, 10, c)}})
	}
	for name, c := range map[string]struct {
		count  status.Count
		want   string
		settle bool
	}{
		"no proxy":             {status.Count{}, "Unknown NoProxies no connected proxy got anything from it", true},
		"others":               {status.Count{NotConcerned: 3}, "Unknown NoProxies no connected proxy got anything from it", true},
		"its resources went":   {status.Count{Accepted: 1}, "Unknown NoProxies no connected proxy got anything from it", true},
		"one is yet to answer": {status.Count{NotConcerned: 1, Waiting: 1}, "False Waiting 0 of 1 proxies concerned have acknowledged it, waiting for 1", false},
		"one refuses":          {status.Count{Rejected: 1}, "False Refused 0 of 1 proxies concerned have acknowledged it, refused by 1", false},
	} {
		report, settled := makeReport(object("reviews", 10), nil, evidence{facts: factsWith(c.count)}, noon)
		if p := report.Conditions[1]; fmt.Sprintf("%s %s %s", p.Status, p.Reason, p.Message) != c.want || settled != c.settle {
			t.Errorf("%s: settled %v, %+v", name, settled, p)
		}
	}

	// Proxies that come and go without it change nothing that is written.
	before, _ := makeReport(object("reviews", 10), nil, evidence{facts: factsWith(status.Count{Accepted: 2}), used: true}, noon)
	after, _ := makeReport(object("reviews", 10), before, evidence{facts: factsWith(status.Count{Accepted: 5, NotConcerned: 7}), used: true}, noon.Add(time.Hour))
	if !sameContent(after, before) {
		t.Errorf("%+v, was %+v", after, before)
	}
}

// TestConditionsAreReadAsKstatus reads reports as kstatus does: Stalled is Failed,
// Reconciling is InProgress, else an object is Current. No report has both.
func TestConditionsAreReadAsKstatus(t *testing.T) {
	t.Parallel()
	path := object("reviews", 10).Key().Path()
	refused := status.Problem{Node: "edge", Type: "LDS", Revision: 9, Rejected: true, RejectedRevision: 10, Message: "no port"}
	notBuilt := status.Problem{Type: "CDS", Rejected: true, RejectedRevision: 10, Message: "c: too long", Objects: []string{path}}
	factsWith := func(c status.Count, problems ...status.Problem) *statuses.Reports {
		return factsOf(&status.Replica{ID: "a", Changes: []status.Change{change(9, 10, c)}, Problems: problems})
	}
	for name, c := range map[string]struct {
		facts *statuses.Reports
		used  bool
		want  string // the status as kstatus names it, reason and message
	}{
		"nobody has reported":   {factsOf(), true, "InProgress Waiting 0 of 0 proxies concerned have acknowledged it, servers that have not published it yet: 1"},
		"under way":             {factsWith(status.Count{Accepted: 1, Waiting: 1}), true, "InProgress Waiting 1 of 2 proxies concerned have acknowledged it, waiting for 1"},
		"taken":                 {factsWith(status.Count{Accepted: 2}), true, "Current"},
		"for nobody":            {factsWith(status.Count{NotConcerned: 2}), false, "Current"},
		"refused":               {factsWith(status.Count{Accepted: 1, Rejected: 1}, refused), true, "Failed Refused edge LDS: no port"},
		"refused, others wait":  {factsWith(status.Count{Waiting: 1, Rejected: 1}, refused), true, "Failed Refused edge LDS: no port"},
		"refused, nobody named": {factsWith(status.Count{Accepted: 1, Rejected: 1}), true, "Failed Refused 1 of 2 proxies concerned have acknowledged it, refused by 1"},
		"not built":             {factsWith(status.Count{Accepted: 2}, notBuilt), true, "Failed NotBuilt not built, proxies keep its last good form: CDS c: too long (PTL0131)"},
	} {
		report, _ := makeReport(object("reviews", 10), nil, evidence{facts: c.facts, used: c.used}, noon)
		got := "Current"
		for _, condition := range report.Conditions {
			kstatus := map[string]string{status.Stalled: "Failed", status.Reconciling: "InProgress"}[condition.Type]
			if kstatus == "" {
				continue
			}
			if got != "Current" || condition.Status != status.True {
				t.Errorf("%s: %s %s after %s", name, condition.Type, condition.Status, got)
			}
			got = fmt.Sprintf("%s %s %s", kstatus, condition.Reason, condition.Message)
		}
		if got != c.want || report.Generation != 3 {
			t.Errorf("%s: generation %d, %s, want %s", name, report.Generation, got, c.want)
		}
	}
}

func TestWordsAreBounded(t *testing.T) {
	t.Parallel()
	var many []status.Problem
	for i := range 10 {
		many = append(many, status.Problem{Node: strconv.Itoa(i), Type: "CDS", Message: "no"})
	}
	if got := quote(many); got != "0 CDS: no; 1 CDS: no; 2 CDS: no; and 7 more" {
		t.Errorf("%s", got)
	}
}

// stored is what a Writer sees.
type stored struct {
	configs  pmap.Map[*config.Config]
	statuses pmap.Map[*status.Report]
	revision int64
	epoch    int64
}

func (m *stored) put(o *config.Config) { m.configs = m.configs.Set(o.Key().Path(), o); m.revision++ }

func (m *stored) snapshot() *cache.Snapshot {
	return (*cache.Snapshot)(nil).Next(m.revision, cache.Content{Configs: m.configs, Statuses: m.statuses}).InEpoch(m.epoch)
}

// land takes in what was written, as the watch would.
func (m *stored) land(t *testing.T, writes []status.Write, says map[string]*status.Report) {
	t.Helper()
	for _, w := range writes {
		m.revision++
		if w.Report == nil {
			m.statuses = m.statuses.Delete(w.Path)
			continue
		}
		m.statuses = m.statuses.Set(w.Path, says[w.Path])
	}
}

// TestAStormIsFewWrites: however often objects change, each look writes at most one status
// for each object, and at most maxWrites, all true at that time.
func TestAStormIsFewWrites(t *testing.T) {
	t.Parallel()
	m, tracked := &stored{}, newStatusQueue()
	const objects = 3 * maxWrites / 2
	for round := range 20 {
		for i := range objects {
			m.put(object(fmt.Sprintf("o%04d", i), int64(1+i+round)))
		}
		tracked.follow(inputsOf(m.snapshot(), factsOf(), nil), noon)
	}
	facts := factsOf(&status.Replica{ID: "a", Proxies: 1, Changes: []status.Change{change(0, 1e6, status.Count{Accepted: 1})}})
	total := 0
	for look := 1; ; look++ {
		tracked.follow(inputsOf(m.snapshot(), facts, nil), noon)
		writes := tracked.due(noon)
		if len(writes) == 0 {
			break
		}
		if len(writes) > maxWrites || look > 5 {
			t.Fatalf("look %d: %d writes", look, len(writes))
		}
		total += len(writes)
		says := map[string]*status.Report{}
		for path, o := range m.configs.All() {
			says[path], _ = makeReport(o, nil, evidence{facts: facts, used: true}, noon)
		}
		m.land(t, writes, says)
	}
	if total != objects || len(tracked.pending) != 0 || !tracked.idle {
		t.Errorf("%d writes for %d objects, %d are pending, idle %v", total, objects, len(tracked.pending), tracked.idle)
	}

	// A change that takes long is reported, and then not again for a while.
	m.put(object("slow", 2e6))
	waiting := factsOf(&status.Replica{ID: "a", Proxies: 1, Changes: []status.Change{change(0, 3e6, status.Count{Waiting: 1})}})
	tracked.follow(inputsOf(m.snapshot(), waiting, nil), noon)
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 0}, {settleTime - 1, 0}, {settleTime, 1}, {settleTime + repeatInterval - 1, 0}, {settleTime + repeatInterval, 1}} {
		if writes := tracked.due(noon.Add(c.after)); len(writes) != c.want {
			t.Errorf("after %s: %d writes, want %d", c.after, len(writes), c.want)
		}
	}

	// A deleted object loses its status, and a new leader goes by the stored statuses.
	m.configs = m.configs.Delete(object("slow", 0).Key().Path())
	m.configs = m.configs.Delete(object("o0000", 0).Key().Path())
	next := newStatusQueue()
	next.follow(inputsOf(m.snapshot(), facts, nil), noon)
	writes := next.due(noon)
	if len(writes) != 1 || writes[0].Report != nil || !strings.HasSuffix(writes[0].Path, "/o0000") || len(next.pending) != 1 {
		t.Errorf("a new leader: %v, %d pending", writes, len(next.pending))
	}
	m.land(t, writes, nil)
	next.follow(inputsOf(m.snapshot(), facts, nil), noon)
	if writes := next.due(noon); len(writes) != 0 || len(next.pending) != 0 {
		t.Errorf("after the status is gone: %v, %d pending", writes, len(next.pending))
	}
}

// TestStrays: proxies of a server that is gone are marked as gone, and proxies that have
// been gone for long are forgotten.
func TestStrays(t *testing.T) {
	t.Parallel()
	facts := factsOf(&status.Replica{ID: "a"})
	for node, p := range map[string]*status.Proxy{
		"here": {Replica: "a", Seen: noon}, "lost": {Replica: "b", Seen: noon},
		"away": {Seen: noon}, "forgotten": {Seen: noon.Add(-forgetAfter - 1)},
	} {
		p.Node = node
		facts.Proxies = facts.Proxies.Set(node, p)
	}
	got := map[string]bool{}
	for _, w := range expireProxies(facts, noon) {
		got[strings.TrimPrefix(w.Key, etcd.ProxyPrefix)] = w.Value == nil
	}
	if forgets, ok := got["forgotten"]; len(got) != 2 || !forgets || !ok || got["lost"] {
		t.Errorf("%v", got)
	}
}
