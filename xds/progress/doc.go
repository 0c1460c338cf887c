// Package progress tells how far changes have come among the proxies of all servers of
// one store, and writes it into the status of objects.
//
// Every server knows the proxies that are connected to it: a Tracker follows each
// subscription. The server's Reporter stores a summary (side/status/replica/<id>) and the
// objects in use (side/status/use/<id>/<part>), under a lease that ends with the server.
// Under the same lease it stores the objects of sources other than the store
// (side/status/source/, side/status/content/). It also stores the proxies that it has met
// (side/status/proxy/<node>). A View joins the reports of all servers with what this one
// knows now, for callers that wait for a change. The Writer runs on one server at a time.
// It writes the conditions Accepted, Programmed, Rejected, Reconciling and Stalled of each
// changed object, until all proxies that the change concerns have taken it. It writes them
// again when proxies begin or cease to use the object. Whenever verdicts change, it writes
// the conditions ResolvedRefs, Conflicted and PartlyServed.
//
// Writes are bounded by time, whatever the number of changes: each server writes one report
// a second, and the Writer at most maxWrites statuses a second, each true when it is
// written. A server where nothing happens does not look at its proxies.
package progress
