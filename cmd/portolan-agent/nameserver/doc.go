// Package nameserver is the DNS server of a machine of the mesh. It answers the hosts of the mesh
// from a table, and forwards all other questions to the resolvers of the machine.
//
//	Table      has the hosts that the control plane names
//	Server     answers or forwards each question over UDP and TCP
//	forwarder  asks the resolvers
//	cache      keeps answers of resolvers as long as they allow (RFC 2308)
//	System     reads resolv.conf(5)
//
// What names stand for is as in Istio (pkg/dns/client).
package nameserver
