package progress

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cache/beside"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// View tells how far changes have come among the proxies of all servers. It reads this
// server's state now, and the reports of the others, which are about a second old.
type View struct {
	ID       string // the id of this server
	Server   Server
	Statuses *statuses.Cache
	Beside   *beside.Sources // the sources of this server other than the store
	// Phases returns the namespaces on the way from some PeerAuthentications to others; nil
	// means that there are none.
	Phases func() []string
}

// Report returns what became of an object, as this server knows it now: its own proxies are
// judged at once, and those of others by their reports. stored is the report in the store,
// which may be about an earlier write; nil for none.
func (v *View) Report(object *config.Config, stored *status.Report, verdicts []verdict.Verdict) *status.Report {
	facts := *v.facts()
	facts.Replicas = facts.Replicas.Set(etcd.ReplicaKey(v.ID)[len(etcd.ReplicaPrefix):], v.Server.Progress().Report(v.ID, maxProblems))
	used := v.usage(&facts)
	report, _ := makeReport(object, stored, evidence{facts: &facts, verdicts: verdicts, used: used.has(status.ObjectID(object.Key()))}, time.Time{}) // nobody knows since when
	if stored.Of(object.UID) {
		report.Revision, report.Addresses = stored.Revision, stored.Addresses
	}
	return report
}

// usage returns what is in use on this server now, and on others according to facts.
func (v *View) usage(facts *statuses.Reports) usage {
	used := usageOf(facts)
	for part, ids := range v.Server.UsedObjects() {
		used.parts[part] = append(used.parts[part], ids)
	}
	return used
}

// maxNamed bounds the proxies that a Distribution names in each of its lists.
const maxNamed = 20

// Distribution is how far a revision has come. Its JSON form is an API.
type Distribution struct {
	Revision     int64 `json:"revision"`
	status.Count `json:",inline"`
	// Published is the newest revision that the server that answers has published.
	Published int64 `json:"published"`
	// Offline is how many known proxies are connected to no server. Those that are expected
	// back count as waiting instead.
	Offline int `json:"offline"`
	// Behind names the servers that have yet to publish the revision. Their proxies are
	// not counted.
	Behind []string `json:"behind,omitempty"`
	// Phases are the namespaces whose workloads and clients are on the way from some
	// PeerAuthentications to others. The change is done when there are none.
	Phases []string `json:"phases,omitempty"`
	// MissingModules are the WasmPlugins whose module a server does not have, or is about to send.
	MissingModules []status.MissingModule `json:"missingModules,omitempty"`
	// Problems names proxies that reject or lack something, rejections first. Gone names
	// those that are offline, the one that was seen last first. Both are bounded.
	Problems []status.Problem `json:"troubles,omitempty"`
	Gone     []Place          `json:"gone,omitempty"`
}

// Place says where a known proxy is connected, if not to this server. Its JSON form is an
// API for proxies that are connected to no server.
type Place struct {
	Node string `json:"node"`
	// Namespace is the namespace of the proxy, empty if a server of an older version
	// reported it.
	Namespace string `json:"namespace,omitempty"`
	// Server is the id of the other server, empty for none, and API the URL of its config
	// API, empty if that is unknown.
	Server string `json:"-"`
	API    string `json:"-"`
	// Seen is when the proxy connected, or was last seen.
	Seen time.Time `json:"seen"`
	// Returning: it is connected to no server, and was so until a moment ago, and its machine did not
	// say that it leaves.
	Returning bool `json:"returning,omitempty"`
}

// returnWithin is how long a proxy that left is expected back. Envoys try again after half a
// minute at most, and gRPC clients after two.
const returnWithin = 2 * time.Minute

func (v *View) phases() []string {
	if v.Phases == nil {
		return nil
	}
	return v.Phases()
}

// facts returns what the servers report; it is empty before this server has read it.
func (v *View) facts() *statuses.Reports {
	if facts, _ := v.Statuses.Reports(); facts != nil {
		return facts
	}
	return &statuses.Reports{}
}

// Of returns how far the change of one revision has come. If all is set, it returns how
// far all changes up to it have come.
func (v *View) Of(revision int64, all bool) Distribution {
	p := v.Server.Progress()
	here, there := p.Alone, (*status.Replica).Responses
	if all {
		here, there = p.All, (*status.Replica).ResponsesUpTo
	}
	last := p.lastChange(revision)
	out := v.distribution(p, v.facts(), here(revision), p.Published >= revision, func(r *status.Replica) (status.Count, bool) {
		if last == 0 { // nothing has changed yet
			return status.Count{NotConcerned: r.Proxies}, true
		}
		return there(r, last)
	})
	out.Revision, out.Problems = revision, relevant(out.Problems, revision, all)
	return out
}

// OfObject returns how far the content of an object of another source than the store has
// come. A server that does not have this version of the object is behind.
func (v *View) OfObject(object *config.Config) Distribution {
	published := v.Beside.Has(object) // read before the progress, which includes it
	p, facts := v.Server.Progress(), v.facts()
	out := v.distribution(p, facts, p.now(), published, func(r *status.Replica) (status.Count, bool) {
		return r.Now, beside.Has(facts, r.ID, object)
	})
	path, refusing := object.Key().Path(), map[string]bool{}
	out.Problems = slices.DeleteFunc(out.Problems, func(t status.Problem) bool {
		named := slices.Contains(t.Objects, path)
		if t.Rejected && named && t.Node != "" {
			refusing[t.Node] = true
		}
		return t.Rejected && !named
	})
	out.Revision, out.Problems = p.Published, relevant(out.Problems, p.Published+1, true)
	others := out.Rejected - min(out.Rejected, len(refusing))
	out.Accepted, out.Rejected = out.Accepted+others, out.Rejected-others
	return out
}

// distribution adds up the counts of all servers. here counts for this server, if that has
// published the change. there returns the count of another server, false if that has yet to
// publish it. The result has all problems, which the caller filters.
func (v *View) distribution(p *Tally, facts *statuses.Reports, here status.Count, published bool, there func(*status.Replica) (status.Count, bool)) Distribution {
	out := Distribution{Phases: v.phases(), Published: p.Published, Problems: p.Problems(maxNamed), Gone: v.gone(p, facts)}
	if published {
		out.Count = here
	} else {
		out.Behind = append(out.Behind, v.ID)
	}
	out.MissingModules = missingOn(v.ID, p.MissingModules)
	for replica := range facts.Replicas.Values() {
		if replica.ID == v.ID {
			continue
		}
		out.MissingModules = append(out.MissingModules, missingOn(replica.ID, replica.MissingModules)...)
		if count, ok := there(replica); ok {
			out.Count, out.Problems = out.Plus(count), append(out.Problems, replica.Problems...)
		} else {
			out.Behind = append(out.Behind, replica.ID)
		}
	}
	for _, place := range out.Gone {
		if place.Returning {
			out.Waiting++
		} else {
			out.Offline++
		}
	}
	out.Gone = out.Gone[:min(len(out.Gone), maxNamed)]
	return out
}

// Others returns how many proxies each other server has, and the URL of its config API, by
// its id; and the known proxies that are connected to no server, the one that was seen last
// first.
func (v *View) Others() (elsewhere map[string]int, apis map[string]string, gone []Place) {
	facts := v.facts()
	elsewhere, apis = map[string]int{}, map[string]string{}
	for replica := range facts.Replicas.Values() {
		if replica.ID != v.ID {
			elsewhere[replica.ID] = replica.Proxies
			if replica.API != "" {
				apis[replica.ID] = urlOf(replica.API)
			}
		}
	}
	return elsewhere, apis, v.gone(v.Server.Progress(), facts)
}

// relevant keeps the problems of proxies that may lack a revision or, if all is set,
// any change up to it.
func relevant(problems []status.Problem, revision int64, all bool) []status.Problem {
	problems = slices.DeleteFunc(problems, func(t status.Problem) bool {
		return t.Revision >= revision || t.Rejected && !all && t.RejectedRevision < revision
	})
	slices.SortStableFunc(problems, rejectedFirst)
	return problems[:min(len(problems), maxNamed)]
}

// Elsewhere returns where the known proxies are connected, by node id, about a second late.
// Ignore its entries for proxies of this server.
func (v *View) Elsewhere() []Place { return elsewhere(v.ID, v.facts(), time.Now()) }

// Runs says whether a gateway with some labels is connected to any server, about a second late.
func (v *View) Runs(selector labels.Instance) bool {
	facts := v.facts()
	for proxy := range facts.Proxies.Values() {
		if proxy.Type == string(discovery.Router) && selector.SubsetOf(proxy.Labels) && liveServer(facts, proxy.Replica) != nil {
			return true
		}
	}
	return false
}

// elsewhere returns the places of the known proxies, as a server with an id sees them.
func elsewhere(id string, facts *statuses.Reports, now time.Time) []Place {
	var out []Place
	for proxy := range facts.Proxies.Values() {
		place := Place{Node: proxy.Node, Namespace: proxy.Namespace, Seen: proxy.Seen}
		if replica := liveServer(facts, proxy.Replica); replica != nil && replica.ID != id {
			place.Server, place.API = replica.ID, urlOf(replica.API)
		} else {
			place.Returning = !proxy.Departed && (proxy.Replica != "" || now.Sub(proxy.Seen) < returnWithin) // the server died, or it left a moment ago
		}
		out = append(out, place)
	}
	return out
}

// ProxiesElsewhere returns the proxies that are connected to other servers, as far as servers
// report them: what they say of themselves and what they proved.
func (v *View) ProxiesElsewhere() []*discovery.Proxy {
	facts := v.facts()
	var out []*discovery.Proxy
	for known := range facts.Proxies.Values() {
		replica := liveServer(facts, known.Replica)
		p := verdict.ProxyOf(known)
		if p == nil || replica == nil || replica.ID == v.ID {
			continue
		}
		if parts := strings.Split(p.ID, "~"); len(parts) == 4 {
			p.Name, p.DNSDomain = parts[2], parts[3]
		}
		if known.Certified {
			p.Certificate = reportedCertificate
		}
		out = append(out, p)
	}
	return out
}

// reportedCertificate stands for the files of a proxy's certificate, whose paths are not reported.
var reportedCertificate = discovery.CertificateFiles{Chain: "chain", Key: "key", Roots: "roots"}

// urlOf returns the URL of a config API. Servers of older versions report its HOST:PORT.
func urlOf(api string) string {
	if api == "" || strings.Contains(api, "://") {
		return api
	}
	return "http://" + api
}

// gone returns the known proxies that are not connected, the one that was seen last
// first.
func (v *View) gone(p *Tally, facts *statuses.Reports) []Place {
	here := map[string]bool{}
	for _, proxy := range p.proxies {
		here[proxy.ID] = true
	}
	out := slices.DeleteFunc(elsewhere(v.ID, facts, time.Now()), func(place Place) bool { return place.Server != "" || here[place.Node] })
	for i := range out {
		if _, departed := p.departed[out[i].Node]; departed { // before the report says so
			out[i].Returning = false
		}
	}
	slices.SortFunc(out, func(a, b Place) int {
		return cmp.Or(b.Seen.Compare(a.Seen), strings.Compare(a.Node, b.Node))
	})
	return out
}
