package propagation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cache/side"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds"
)

// View is how far changes have come among the proxies of all servers: of this one
// as it knows it now, of the others as they reported it, about a second ago.
type View struct {
	ID     string // of this server
	Server Server
	Side   *side.Cache
}

// maxNamed bounds the proxies that a Progress names of each sort.
const maxNamed = 20

// Progress is how far a revision has come. Its JSON form is an API.
type Progress struct {
	Revision     int64 `json:"revision"`
	status.Count `json:",inline"`
	// Published is the newest revision that the server that was asked has published.
	Published int64 `json:"published"`
	// Offline is how many proxies are known and not connected to any server.
	Offline int `json:"offline"`
	// Behind are the servers that have not published the revision yet, and whose
	// proxies are not counted.
	Behind []string `json:"behind,omitempty"`
	// Troubles are proxies that lack something, those that refused it first, and Gone
	// those that are offline, the one that was seen last first. Both are bounded.
	Troubles []status.Trouble `json:"troubles,omitempty"`
	Gone     []Gone           `json:"gone,omitempty"`
}

// Gone is a proxy that is not connected.
type Gone struct {
	Node string    `json:"node"`
	Seen time.Time `json:"seen"`
}

// Of tells how far the change of one revision has come; where all is set, how far
// everything up to it has.
func (v *View) Of(revision int64, all bool) Progress {
	p := v.Server.Propagation()
	out := Progress{Revision: revision, Published: p.Published}
	took := (*status.Replica).Took
	if all {
		out.Count, took = p.All(revision), (*status.Replica).TookAll
	} else {
		out.Count = p.Alone(revision)
	}
	if p.Published < revision {
		out.Behind, out.Count = append(out.Behind, v.ID), status.Count{}
	}
	out.Troubles = p.Troubles(maxNamed)
	facts, _ := v.Side.Facts()
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
		out.Troubles = append(out.Troubles, replica.Troubles...)
	}
	out.Troubles = relevant(out.Troubles, revision, all)
	out.Gone = v.gone(p, facts)
	out.Offline = len(out.Gone)
	out.Gone = out.Gone[:min(len(out.Gone), maxNamed)]
	return out
}

// Others are the proxies that this server does not have: how many each other server
// has, by its id, and those that are gone, the one that was seen last first.
func (v *View) Others() (elsewhere map[string]int, gone []Gone) {
	facts, _ := v.Side.Facts()
	if facts == nil {
		return nil, nil
	}
	elsewhere = map[string]int{}
	for replica := range facts.Replicas.Values() {
		if replica.ID != v.ID {
			elsewhere[replica.ID] = replica.Proxies
		}
	}
	return elsewhere, v.gone(v.Server.Propagation(), facts)
}

// relevant are the troubles of proxies that may lack a revision, or anything up to
// it.
func relevant(troubles []status.Trouble, revision int64, all bool) []status.Trouble {
	troubles = slices.DeleteFunc(troubles, func(t status.Trouble) bool {
		return t.Revision >= revision || t.Rejected && !all && t.RejectedRevision < revision
	})
	slices.SortStableFunc(troubles, func(a, b status.Trouble) int {
		switch {
		case a.Rejected && !b.Rejected:
			return -1
		case b.Rejected && !a.Rejected:
			return 1
		}
		return 0
	})
	return troubles[:min(len(troubles), maxNamed)]
}

// gone are the proxies that are known and not connected, the one that was seen last
// first.
func (v *View) gone(p *xds.Propagation, facts *side.Facts) []Gone {
	var out []Gone
	here := map[string]bool{}
	for node := range p.Nodes() {
		here[node] = true
	}
	for proxy := range facts.Proxies.Values() {
		elsewhere := proxy.Replica != v.ID && alive(facts, proxy.Replica)
		if !elsewhere && !here[proxy.Node] {
			out = append(out, Gone{proxy.Node, proxy.Seen})
		}
	}
	slices.SortFunc(out, func(a, b Gone) int {
		return cmp.Or(b.Seen.Compare(a.Seen), strings.Compare(a.Node, b.Node))
	})
	return out
}
