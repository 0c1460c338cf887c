package admission

import (
	"cmp"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/xds/progress"
)

// Refusal is a client that was refused because of who it is or says that it is. Its JSON
// form is an API.
type Refusal struct {
	// Node is the node id, empty if the client was refused before it sent one.
	Node     string `json:"node,omitempty"`
	Identity string `json:"identity,omitempty"`
	Address  string `json:"address,omitempty"`
	Reason   string `json:"reason"`
	// Last is when it was refused last, and Times how often since the gate began to
	// remember it.
	Last  time.Time `json:"last"`
	Times int       `json:"times"`
}

const (
	// keptRefusals bounds how many refusals are remembered, and keptRefusal for how long.
	keptRefusals, keptRefusal = 100, time.Hour
	// maxNodeKept and maxReasonKept bound the bytes that are kept of a node id and of a
	// reason, since clients choose the words.
	maxNodeKept, maxReasonKept = 512, 4 << 10
)

// refusals remembers the latest refusal of each client.
type refusals struct {
	mu  sync.Mutex // guards all
	all []Refusal  // the latest last
}

func (r *refusals) add(refused Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, had := range r.all {
		if had.Node == refused.Node && had.Identity == refused.Identity && hostOf(had.Address) == hostOf(refused.Address) {
			refused.Times += had.Times
			r.all = slices.Delete(r.all, i, i+1)
			break
		}
	}
	if len(r.all) == keptRefusals {
		r.all = slices.Delete(r.all, 0, 1)
	}
	r.all = append(r.all, refused)
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// served forgets the refusals of a node, because the node is served now.
func (r *refusals) served(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(had Refusal) bool { return had.Node == node })
}

// list returns the refusals of the last hour, the latest first.
func (r *refusals) list(now time.Time) []Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(had Refusal) bool { return now.Sub(had.Last) > keptRefusal })
	out := slices.Clone(r.all)
	slices.SortStableFunc(out, func(a, b Refusal) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Node, b.Node)) })
	return out
}

// Refusals returns the clients that were refused within the last hour because of who they
// are or say that they are, the latest first, a hundred at most.
func (g *Gate) Refusals() []Refusal { return g.refusals.list(time.Now()) }

// refuse counts, remembers, logs and reports that a client is refused, and why.
func (s *Stream) refuse(node string, err error) {
	r := Refusal{Node: progress.Shorten(node, maxNodeKept), Identity: s.peer.Identity.String(), Reason: progress.Shorten(status.Convert(err).Message(), maxReasonKept), Last: time.Now(), Times: 1}
	if s.remote != nil {
		r.Address = s.remote.String()
	}
	g := s.gate
	g.refused.Inc()
	g.refusals.add(r)
	if g.options.OnRefusal != nil && status.Code(err) != codes.Unavailable {
		g.options.OnRefusal(r)
	}
	g.logger.Warn("refusing a proxy", "proxy", r.Node, "identity", r.Identity, "client", r.Address, "err", r.Reason)
}
