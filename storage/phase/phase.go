// Package phase is the spec of a PeerPhase: how far the workloads of a namespace have come on
// the way from some PeerAuthentications to others.
//
// A change has three phases. First servers take what the old and the new policies ask for, then
// clients do what the new ones ask, and then servers take only that. The leader moves a
// namespace on by writing its PeerPhase, so all servers make the same resources, and a server
// that starts goes on where the others are.
package phase

// Peers is the spec of a PeerPhase, which has the namespace of the policies.
type Peers struct {
	// Settled are the policies that servers and clients follow, the oldest first.
	Settled []Policy `json:"settled,omitempty"`
	// Toward is the digest of the policies to which clients may change. Servers take both
	// modes. Empty while clients follow Settled.
	Toward string `json:"toward,omitempty"`
}

// Policy is what counts of a PeerAuthentication.
type Policy struct {
	Name string `json:"name"`
	// Selector has the labels of the workloads, none for all.
	Selector map[string]string `json:"selector,omitempty"`
	// Mode and Ports are as in the PeerAuthentication. Ports are ports of workloads.
	Mode  string            `json:"mode,omitempty"`
	Ports map[string]string `json:"ports,omitempty"`
}
