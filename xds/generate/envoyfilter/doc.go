// Package envoyfilter applies the patches of EnvoyFilters to generated resources, and makes the
// resources that they add. Package xds/envoy/patch knows what a patch does to a message. This one
// says which resource is at which place, asks the View for the patches there, and finds what the
// patched message needs.
//
// Sidecars and gateways have patches. The resources of gRPC clients have none, as in Istio: such a
// client takes parts of Envoy's messages only (pilot/pkg/networking/grpcgen).
//
// Virtual hosts are resources of their own, for all proxies: VIRTUAL_HOST and HTTP_ROUTE patch them
// there. ROUTE_CONFIGURATION patches the frame, which has a few virtual hosts of its own, such as the
// one for unknown hosts. The routes of inbound listeners are within the listeners.
package envoyfilter
