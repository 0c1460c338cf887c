// Package effect has the JSON shapes of what a dry run would change for proxies.
package effect

import "encoding/json"

// Preview says how much of its effect a dry run finds out. Each includes the ones before
// it.
type Preview string

// The previews.
const (
	PreviewNothing   Preview = ""
	PreviewProxies   Preview = "proxies"   // how the objects differ, and which proxies are concerned
	PreviewResources Preview = "resources" // which of their resources differ
	PreviewBodies    Preview = "bodies"    // how the resources differ
)

// Previews are all but the empty one.
var Previews = []Preview{PreviewProxies, PreviewResources, PreviewBodies}

// The bounds of an Effect.
const (
	MaxNodes     = 100
	MaxResources = 1000
)

// Effect says what a batch would change for the proxies connected to a server. A proxy
// is concerned if it would get other resources.
type Effect struct {
	// Proxies is the number of connected proxies, and Concerned how many of them are
	// concerned. Nodes are the ids of the first MaxNodes of these, in order.
	Proxies   int      `json:"proxies"`
	Concerned int      `json:"concerned"`
	Nodes     []string `json:"nodes,omitempty"`
	// Elsewhere is the number of proxies on other servers. The effect does not cover
	// them.
	Elsewhere int `json:"elsewhere,omitempty"`
	// Phases are the namespaces whose PeerAuthentications change in phases. All else is the
	// difference between now and the last phase.
	Phases []string `json:"phases,omitempty"`
	// Resources are the resources that would differ, by type and name. Omitted is how
	// many more there are beyond MaxResources. Both need PreviewResources.
	Resources []ResourceChange `json:"resources,omitempty"`
	Omitted   int              `json:"omitted,omitempty"`
	// Policies are the AuthorizationPolicies of the batch, by name, and Calls what becomes of the
	// calls to those whom they select; absent without a policy.
	Policies []Policy `json:"policies,omitempty"`
	Calls    *Calls   `json:"calls,omitempty"`
}

// Policy is whom an AuthorizationPolicy would select or, if it would be deleted, selects.
type Policy struct {
	Policy string `json:"policy"`
	// Workloads counts the connected workloads. Nodes are the ids of the first MaxNodes, in order.
	Workloads int      `json:"workloads"`
	Nodes     []string `json:"nodes,omitempty"`
}

// Calls says which foreseen calls policies would newly refuse. A call is foreseen if Sidecars and
// routes let a connected proxy make it.
type Calls struct {
	// Foreseen counts the calls that were looked at. More: there are more.
	Foreseen int  `json:"foreseen"`
	More     bool `json:"more,omitempty"`
	// Refused counts those that would newly be refused. First are the first MaxNodes, in order.
	Refused int      `json:"refused"`
	First   []string `json:"first,omitempty"`
}

// The changes of a resource.
const (
	Added   = "added"
	Changed = "changed"
	Removed = "removed"
)

// ResourceChange is a resource that would be added, changed or removed, in the same way
// for some proxies.
type ResourceChange struct {
	// Type is the short name of its type, such as CDS. A virtual host has the type VHDS,
	// even if a proxy gets it within its route configuration.
	Type   string `json:"type"`
	Name   string `json:"name"`
	Change string `json:"change"`
	// Proxies is the number of proxies for which it would change so.
	Proxies int `json:"proxies"`
	// Before and After are the messages; they need PreviewBodies.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}
