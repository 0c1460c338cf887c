// Package destination computes with DestinationRules: it merges those of one host
// (Merge), chooses among them for a client (Choice), and finds the policy of a port and
// subset (Rule.PolicyFor). It does not know the mesh: package mesh keeps the rules in a
// table and queries them for proxies.
package destination
