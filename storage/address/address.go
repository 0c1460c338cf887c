package address

import "net/netip"

// Assignment is the durable address of a host in a namespace: one of each
// family, for all ServiceEntries of that namespace that have the host. It is
// never modified.
type Assignment struct {
	Namespace, Host string
	IPv4, IPv6      netip.Addr
	// Revision is the revision at which the host got the addresses. They do not change as
	// long as it has any.
	Revision int64
}

// Path returns the key of the assignment in a map of all assignments.
func (a *Assignment) Path() string { return Path(a.Namespace, a.Host) }

// Path returns the key of the assignment of a host.
func Path(namespace, host string) string { return namespace + "/" + host }
