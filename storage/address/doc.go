// Package address gives each host of a ServiceEntry that names no address one of
// its own: an IPv4 and an IPv6 address, the same for every server of a store, and
// for as long as a ServiceEntry of the namespace has the host. So TCP services of
// one port can be told apart.
//
// The package decides and keeps nothing. A store gives it the changes that it is
// about to commit (Claims) and what it has of the hosts and addresses concerned
// (View), and commits with them what Decide returns, on condition that what
// Decide has seen is still so.
//
// Which address a host gets follows from its name: the slots that Ranges.Probe
// goes through, the first that was never used. Slots are remembered when they are
// free again, so a host that comes back gets the address that it had, and another
// gets it only where there is nothing better, and not before Grace is over.
package address
