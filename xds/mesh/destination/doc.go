// Package destination is the arithmetic of DestinationRules: how those of one host are
// merged (Merge), which of them a client uses (Choice), and which policy applies to a
// port of a subset (Rule.PolicyFor). It knows no mesh: package mesh keeps the rules in
// a table and asks for the proxies.
package destination
