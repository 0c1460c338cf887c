package xds

import (
	"runtime"
	"time"

	"github.com/portolan-mesh/portolan/xds/stream"
)

// ProxyStatus is what is known of a connected proxy. Its JSON form is an API.
type ProxyStatus struct {
	Node      string `json:"node"`
	Name      string `json:"name"`
	Type      string `json:"type"`
	Namespace string `json:"namespace"`
	Variant   string `json:"variant"`
	Envoy     string `json:"envoy,omitempty"`
	// Revision of the store that all types of the proxy are known to be at.
	Revision       int64        `json:"revision"`
	ConnectedSince time.Time    `json:"connectedSince"`
	Types          []TypeStatus `json:"types"`
}

// TypeStatus is how well a proxy is in step in one type.
type TypeStatus struct {
	Name  string       `json:"name"`
	State stream.State `json:"state"`
	// Revision that the proxy is known to be at; Version and AckedRevision are
	// those of the last response it took.
	Revision      int64  `json:"revision"`
	Version       string `json:"version,omitempty"`
	AckedRevision int64  `json:"ackedRevision"`
	// Message is what the proxy said when it rejected the last response, and
	// RejectedRevision that of the response.
	Message          string    `json:"message,omitempty"`
	RejectedRevision int64     `json:"rejectedRevision,omitempty"`
	Sent             time.Time `json:"sent,omitzero"`
	Answered         time.Time `json:"answered,omitzero"`
}

// report makes the state of the connection known.
func (c *Connection) report() {
	if c.proxy == nil {
		return
	}
	st := &ProxyStatus{
		Node: c.proxy.ID, Name: c.proxy.Name, Type: string(c.proxy.Type), Namespace: c.proxy.Namespace,
		Variant: c.variant.String(), Envoy: c.proxy.EnvoyVersion, ConnectedSince: c.since, Revision: -1,
	}
	for _, t := range c.server.options.Types {
		typeURL := t.Generator.TypeURL()
		s := c.sessions[typeURL].Status()
		ts := TypeStatus{
			Name: t.Name, State: s.State, Revision: s.Revision, Version: s.Acked.Version, AckedRevision: s.Acked.Revision,
			Sent: c.last[typeURL].sent, Answered: c.last[typeURL].answered,
		}
		if s.Rejection != nil {
			ts.Message, ts.RejectedRevision = s.Rejection.Message, s.Rejection.Revision
		}
		if s.State != stream.NotSent && (st.Revision < 0 || s.Revision < st.Revision) {
			st.Revision = s.Revision
		}
		st.Types = append(st.Types, ts)
	}
	st.Revision = max(st.Revision, 0)
	c.status.Store(st)
}

// stallsAt is when the oldest response that is under way runs out; zero where
// none is.
func (c *Connection) stallsAt() time.Time {
	var oldest time.Time
	for typeURL, s := range c.sessions {
		if sent := c.last[typeURL].sent; s.InFlight() && (oldest.IsZero() || sent.Before(oldest)) {
			oldest = sent
		}
	}
	if oldest.IsZero() {
		return oldest
	}
	return oldest.Add(c.server.options.StallTimeout)
}

func processors() int { return runtime.GOMAXPROCS(0) }
