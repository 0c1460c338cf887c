package patch

import (
	"encoding/json"
	"fmt"

	networking "istio.io/api/networking/v1alpha3"
)

// Place says where a resource is: what matches ask about it. It is comparable.
type Place struct {
	// Kind is CLUSTER, LISTENER, ROUTE_CONFIGURATION or VIRTUAL_HOST. Only Select reads it.
	Kind networking.EnvoyFilter_ApplyTo `json:",omitempty"`
	// Name is the name of the resource. Only Select reads it: messages have their names.
	Name string `json:",omitempty"`
	// Context is SIDECAR_INBOUND, SIDECAR_OUTBOUND or GATEWAY.
	Context networking.EnvoyFilter_PatchContext `json:",omitempty"`
	// Port is the port of a listener's address. Only Select reads it, and takes 0 for any port.
	Port uint32 `json:",omitempty"`
	// Routes is the route configuration of a virtual host that is a resource of its own.
	Routes string `json:",omitempty"`
	// Hosts are the hosts of the services on the port of an inbound cluster, and Ports the ports
	// of services that lead to the port of a gateway's routes, in decimal; both are separated by
	// blanks. Without Ports, the port in the name of the routes matches.
	Hosts, Ports string `json:",omitempty"`
	// PortName and Gateway ("namespace/name") are those of a gateway's routes. If they are empty,
	// the name of the route configuration says them, if it is https.<port>.<name>.<gateway>.<namespace>.
	PortName, Gateway string `json:",omitempty"`
}

// String writes the place for ParsePlace.
func (p Place) String() string {
	out, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Errorf("write a place: %w", err)) // it has only texts and numbers
	}
	return string(out)
}

// ParsePlace is the inverse of String.
func ParsePlace(text string) (Place, error) {
	var out Place
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return Place{}, fmt.Errorf("read a place: %w", err)
	}
	return out, nil
}

// Selection is a list of patches that compares by ==. Two are equal if they have the same patches
// in the same order.
type Selection struct {
	last   *Patch
	before any // the Selection of those before, nil for none
}

// Patches returns the patches in order.
func (s Selection) Patches() []*Patch {
	if s.last == nil {
		return nil
	}
	before, _ := s.before.(Selection)
	return append(before.Patches(), s.last)
}

// Empty says that there are no patches.
func (s Selection) Empty() bool { return s.last == nil }

func (s Selection) with(p *Patch) Selection {
	if s.last == nil {
		return Selection{last: p}
	}
	return Selection{last: p, before: s}
}

// Select returns the patches that may change the resource at a place, in order: all that do, and of
// others those that only the content of its message rules out. It is cheap. It also returns those that
// may add the resource: what AddedClusters, AddedListeners, AddedVirtualHosts and Extensions make of
// its name. A sidecar has what is added for SIDECAR_INBOUND beside what is added for SIDECAR_OUTBOUND,
// so both are there at the latter. For BOOTSTRAP these are all patches of it.
func Select(at Place, patches []*Patch) Selection {
	var out Selection
	concerned := concerns(at)
	for _, p := range patches {
		if p.Err == nil && concerned(p) || p.mayAdd(at) {
			out = out.with(p)
		}
	}
	return out
}
