package progress

import (
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/transcript"
)

// ProxyStatus is a Proxy as the API shows it: its JSON form is an API.
type ProxyStatus struct {
	Node      string `json:"node"`
	Name      string `json:"name"`
	Type      string `json:"type"`
	Namespace string `json:"namespace"`
	// Server is the id of the server that it is connected to.
	Server  string `json:"server,omitempty"`
	Variant string `json:"variant"`
	Envoy   string `json:"envoy,omitempty"`
	// Revision of the store that the proxy has for all its types.
	Revision       int64     `json:"revision"`
	ConnectedSince time.Time `json:"connectedSince"`
	// Machine is what the agent of its machine says; nil without an agent. CertificateEnds is
	// when its certificate ends: as the agent says, else as the proxy has shown it.
	Machine         *node.Facts `json:"machine,omitempty"`
	CertificateEnds time.Time   `json:"certificateEnds,omitzero"`
	// StaleSince is since when the proxy has not acknowledged all that concerns it; the
	// zero time if it has.
	StaleSince time.Time `json:"staleSince,omitzero"`
	// Traffic is what its stream has cost until now.
	Traffic transcript.Traffic `json:"traffic"`
	Types   []TypeStatus       `json:"types"`
}

// TypeStatus is a Type as the API shows it: its JSON form is an API.
type TypeStatus struct {
	Name  string         `json:"name"`
	State protocol.State `json:"state"`
	// Revision that the proxy has. Version, AckedRevision and AckedNonce are from the
	// last response that it acknowledged.
	Revision      int64  `json:"revision"`
	Version       string `json:"version,omitempty"`
	AckedRevision int64  `json:"ackedRevision"`
	AckedNonce    string `json:"ackedNonce,omitempty"`
	// SentRevision and SentNonce are from a response that it has yet to answer.
	SentRevision int64  `json:"sentRevision,omitempty"`
	SentNonce    string `json:"sentNonce,omitempty"`
	// Message, RejectedRevision and RejectedNonce are from the newest rejection that
	// stands. Refused lists the rejected resources, up to a bound. Objects names the
	// objects behind all of them, as far as they are known.
	Message          string            `json:"message,omitempty"`
	RejectedRevision int64             `json:"rejectedRevision,omitempty"`
	RejectedNonce    string            `json:"rejectedNonce,omitempty"`
	Objects          []string          `json:"objects,omitempty"`
	Refused          []RefusedResource `json:"refused,omitempty"`
	// Sent and Answered are the times of the last response and the last answer.
	// StaleSince is since when the proxy lacks or rejects something; the zero time if it
	// does not.
	Sent       time.Time `json:"sent,omitzero"`
	Answered   time.Time `json:"answered,omitzero"`
	StaleSince time.Time `json:"staleSince,omitzero"`

	// Waiting is how many changes are held until the proxy has the clusters that they
	// refer to. Kept is how many removals are held while other resources of the proxy
	// still refer to the removed one. Late is how many changes were sent without such
	// clusters, because they had waited too long.
	Waiting int `json:"waiting,omitempty"`
	Kept    int `json:"kept,omitempty"`
	Late    int `json:"late,omitempty"`
}

// RefusedResource is a resource that a proxy rejects. Its JSON form is an API.
type RefusedResource struct {
	// Name of the resource; empty if it is unknown which one the proxy rejects.
	Name     string   `json:"name,omitempty"`
	Revision int64    `json:"revision"`
	Message  string   `json:"message,omitempty"`
	Objects  []string `json:"objects,omitempty"`
}

// Refused is a resource that a connected client rejects.
type Refused struct {
	TypeURL, Name, Message string
	// Objects are those to which the rejection is due, as far as they are known.
	Objects []config.Key
	// Has is what the client has in its place, nil for nothing.
	Has *resource.Resource
}

// Status returns the proxy as the API shows it.
func (p *Proxy) Status() ProxyStatus {
	st := ProxyStatus{
		Node: p.ID, Name: p.Name, Type: string(p.Type), Namespace: p.Namespace,
		Variant: p.Variant.String(), Envoy: p.EnvoyVersion, ConnectedSince: p.Since, Revision: -1,
		Machine: p.Facts, CertificateEnds: p.ProofEnds, Traffic: p.Traffic,
		Types: make([]TypeStatus, 0, len(p.Types)),
	}
	if p.Facts != nil && !p.Facts.CertificateEnds.IsZero() {
		st.CertificateEnds = p.Facts.CertificateEnds
	}
	for i := range p.Types {
		t := &p.Types[i]
		if t.State != protocol.NotSent && (st.Revision < 0 || t.AckedRevision < st.Revision) {
			st.Revision = t.AckedRevision
		}
		if t.State == protocol.NotSent && p.Type == discovery.ConfigClient {
			continue // it may ask for any kind in any version
		}
		if since := t.StaleSince; !since.IsZero() && (st.StaleSince.IsZero() || since.Before(st.StaleSince)) {
			st.StaleSince = since
		}
		st.Types = append(st.Types, t.apiStatus())
	}
	st.Revision = max(st.Revision, 0)
	return st
}

// maxShown bounds the rejected resources of a type that the API shows.
const maxShown = 64

func (t *Type) apiStatus() TypeStatus {
	out := TypeStatus{
		Name: t.Name, State: t.State, Revision: t.AckedRevision,
		Version: t.LastACK.Version, AckedRevision: t.LastACK.Revision, AckedNonce: t.LastACK.Nonce,
		SentRevision: t.Sent.Revision, SentNonce: t.Sent.Nonce,
		Sent: t.SentAt, Answered: t.AnsweredAt, StaleSince: t.StaleSince,
		Waiting: t.Held, Kept: t.Kept, Late: t.Late,
	}
	if t.LastNACK == nil {
		return out
	}
	out.Message, out.RejectedRevision, out.RejectedNonce = t.LastNACK.Message, t.LastNACK.Revision, t.LastNACK.Nonce
	for i, r := range t.Rejections {
		objects := config.Names(r.Objects)
		out.Objects = append(out.Objects, objects...)
		if i < maxShown {
			out.Refused = append(out.Refused, RefusedResource{Name: r.Name, Revision: r.Revision, Message: r.Message, Objects: objects})
		}
	}
	slices.Sort(out.Objects)
	out.Objects = slices.Compact(out.Objects)
	return out
}
