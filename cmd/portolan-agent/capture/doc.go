// Package capture sends the traffic of a machine through its sidecar, by rules of the machine's
// packet filter (nftables).
//
// All rules are in one table of their own, inet portolan, which is replaced as a whole. Tables of
// others are never touched. For TPROXY there is a rule of routing besides (ip rule), with a table
// of its own.
//
// The ports, the mark and the meaning of the rules are Istio's (tools/istio-iptables), but for one:
// only connections to addresses of the machine count as coming in, so that what the machine
// forwards for containers passes by.
package capture
