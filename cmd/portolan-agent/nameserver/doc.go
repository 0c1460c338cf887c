// Package nameserver is the DNS server of a machine of the mesh. It answers the hosts of the mesh
// from a table, and forwards all other questions to the resolvers of the machine.
//
//	Table      the hosts, as the control plane names them one by one
//	Server     takes questions over UDP and TCP, and answers or forwards each
//	forwarder  asks resolvers: in turn, each question once, so many at a time
//	cache      what resolvers have answered, as long as they say (RFC 2308 for what is not there)
//	System     which resolvers the machine has, by resolv.conf(5)
//
// What names stand for is as in Istio (pkg/dns/client).
package nameserver
