package progress

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/status"
)

// View tells how far changes have come among the proxies of all servers. It reads this
// server's state now, and the reports of the others, which are about a second old.
type View struct {
	ID       string // the id of this server
	Server   Server
	Statuses *statuses.Cache
	Beside   *Beside // what this server has of other sources than the store
}

// maxNamed bounds the proxies that a Distribution names in each of its lists.
const maxNamed = 20

// Distribution is how far a revision has come. Its JSON form is an API.
type Distribution struct {
	Revision     int64 `json:"revision"`
	status.Count `json:",inline"`
	// Published is the newest revision that the server that answers has published.
	Published int64 `json:"published"`
	// Offline is how many known proxies are connected to no server.
	Offline int `json:"offline"`
	// Behind names the servers that have yet to publish the revision. Their proxies are
	// not counted.
	Behind []string `json:"behind,omitempty"`
	// Problems names proxies that reject or lack something, rejections first. Gone names
	// those that are offline, the one that was seen last first. Both are bounded.
	Problems []status.Problem `json:"troubles,omitempty"`
	Gone     []Gone           `json:"gone,omitempty"`
}

// Gone is a known proxy that is not connected.
type Gone struct {
	Node string `json:"node"`
	// Namespace is that of the proxy, empty where a server of an older version met it.
	Namespace string    `json:"namespace,omitempty"`
	Seen      time.Time `json:"seen"`
}

// Of returns how far the change of one revision has come. If all is set, it returns how
// far all changes up to it have come.
func (v *View) Of(revision int64, all bool) Distribution {
	p := v.Server.Progress()
	out := Distribution{Revision: revision, Published: p.Published}
	took := (*status.Replica).Took
	if all {
		out.Count, took = p.All(revision), (*status.Replica).TookAll
	} else {
		out.Count = p.Alone(revision)
	}
	if p.Published < revision {
		out.Behind, out.Count = append(out.Behind, v.ID), status.Count{}
	}
	out.Problems = p.Problems(maxNamed)
	facts, _ := v.Statuses.Facts()
	if facts == nil {
		return out
	}
	last := p.LastChange(revision)
	for replica := range facts.Replicas.Values() {
		if replica.ID == v.ID {
			continue
		}
		count, ok := took(replica, last)
		if last == 0 { // nothing has changed yet
			count, ok = status.Count{NotConcerned: replica.Proxies}, true
		}
		if !ok {
			out.Behind = append(out.Behind, replica.ID)
			continue
		}
		out.Count = out.Plus(count)
		out.Problems = append(out.Problems, replica.Problems...)
	}
	out.Problems = relevant(out.Problems, revision, all)
	out.Gone = v.gone(p, facts)
	out.Offline = len(out.Gone)
	out.Gone = out.Gone[:min(len(out.Gone), maxNamed)]
	return out
}

// Others returns the proxies that are not connected to this server: how many each other
// server has, by its id, and those that are gone, the one that was seen last first.
func (v *View) Others() (elsewhere map[string]int, gone []Gone) {
	facts, _ := v.Statuses.Facts()
	if facts == nil {
		return nil, nil
	}
	elsewhere = map[string]int{}
	for replica := range facts.Replicas.Values() {
		if replica.ID != v.ID {
			elsewhere[replica.ID] = replica.Proxies
		}
	}
	return elsewhere, v.gone(v.Server.Progress(), facts)
}

// relevant keeps the problems of proxies that may lack a revision or, if all is set,
// any change up to it.
func relevant(problems []status.Problem, revision int64, all bool) []status.Problem {
	problems = slices.DeleteFunc(problems, func(t status.Problem) bool {
		return t.Revision >= revision || t.Rejected && !all && t.RejectedRevision < revision
	})
	slices.SortStableFunc(problems, func(a, b status.Problem) int {
		switch {
		case a.Rejected && !b.Rejected:
			return -1
		case b.Rejected && !a.Rejected:
			return 1
		}
		return 0
	})
	return problems[:min(len(problems), maxNamed)]
}

// gone returns the known proxies that are not connected, the one that was seen last
// first.
func (v *View) gone(p *Snapshot, facts *statuses.Facts) []Gone {
	var out []Gone
	here := map[string]bool{}
	for node := range p.Nodes() {
		here[node] = true
	}
	for proxy := range facts.Proxies.Values() {
		elsewhere := proxy.Replica != v.ID && alive(facts, proxy.Replica)
		if !elsewhere && !here[proxy.Node] {
			out = append(out, Gone{Node: proxy.Node, Namespace: proxy.Namespace, Seen: proxy.Seen})
		}
	}
	slices.SortFunc(out, func(a, b Gone) int {
		return cmp.Or(b.Seen.Compare(a.Seen), strings.Compare(a.Node, b.Node))
	})
	return out
}
