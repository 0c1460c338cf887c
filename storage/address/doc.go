// Package address allocates an IPv4 and an IPv6 address to each host of a ServiceEntry
// without addresses. They are the same for every server of a store, for as long as a
// ServiceEntry of the namespace has the host. So TCP services of one port can be told
// apart.
//
// The package decides, and keeps nothing. A store passes it the changes that it is
// about to commit (Claims), and its state of their hosts and addresses (Reader). It
// commits with them the result of Decide, if the state that Decide has seen is still
// the same.
//
// The address of a host follows from its name: of the slots that Ranges.Probe returns,
// it is the first that was never used. Freed slots are remembered, so a host that comes
// back gets its former address. Another host gets a freed slot only if no better one is
// left, and not before Grace is over.
package address
