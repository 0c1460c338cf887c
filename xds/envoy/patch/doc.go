// Package patch applies EnvoyFilters to Envoy's messages. It knows messages and matches, and
// nothing of the mesh: a caller says which EnvoyFilters concern a proxy, and where a resource is.
//
// [Parse] reads an EnvoyFilter once, and [Filter.Compare] has the order in which several apply.
// [Select] says which patches may change a resource, in an answer that compares by ==. [Cluster],
// [Listener], [RouteConfiguration], [VirtualHost] and [Bootstrap] change a resource, and
// [AddedClusters], [AddedListeners], [AddedVirtualHosts] and [Extensions] return those that patches
// add. [Check] finds what is wrong with an EnvoyFilter, and [Weakens] what security it takes away.
//
// A message that comes in is never modified: a function returns another one, or the same pointer
// if no patch changed anything. A patch that fails, panics or makes a resource invalid leaves the
// resource as if the patch were not there, and its [Result] says why. Equal patches on equal
// messages make equal bytes.
//
// The semantics are Istio's (pilot/pkg/networking/core/envoyfilter), but for what doc comments say.
// For instance, to apply the patches of a proxy to a cluster:
//
//	at := patch.Place{Context: networking.EnvoyFilter_SIDECAR_OUTBOUND}
//	patched, results := patch.Cluster(message, at, patches)
package patch
