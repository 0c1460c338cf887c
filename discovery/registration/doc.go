// Package registration registers proxies: a proxy whose node names a WorkloadGroup in its
// metadata AUTO_REGISTER_GROUP gets a WorkloadEntry of that group, which lives as long as the
// proxy's stream.
//
// EntryOf makes the WorkloadEntry from what the group and the node say. The Registrar of a server
// is told of each stream (Join), and keeps the entries of its streams in the store. Each entry is
// under a lease, which the server of the stream renews. When the stream ends, the server ends the
// lease after half its time, unless the proxy connects again, to this server or another: that one
// takes the entry over. When the server ends, its leases run out.
//
//	Join -> Registrar.step -> claim.choose -> claim.next -> put, renew, remove
//
// The state of an entry is compared with the state that the streams ask for, again and again. No
// event has to be seen: whatever happened to the entry or the group, the next step mends it.
package registration
