// Package progress tells how far changes have come among the proxies of all servers of
// one store, and writes it into the status of objects.
//
// Every server knows the proxies that are connected to it: a Tracker follows each
// subscription. The server's Reporter stores a summary (side/status/replica/<id>, under
// a lease that ends with the server), the objects in use (side/status/use/<id>/<part>) and
// the proxies that it has met
// (side/status/proxy/<node>). A View joins the reports of all servers with what this
// one knows now, for callers that wait for a change. The Writer runs on one server at a
// time. It makes the conditions Accepted, Programmed, Rejected, Reconciling and Stalled
// of each changed object, until all proxies that the change concerns have taken it, and
// again when proxies begin or cease to use the object. It makes ResolvedRefs, Conflicted
// and PartlyServed of verdicts, whenever these change.
//
// Time bounds what is written, not the number of changes: one report a second and
// server, and maxWrites statuses a second, each true when it is written. A server where
// nothing happens does not look at its proxies.
package progress
