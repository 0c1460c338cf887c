// Package propagation tells how far changes have come: of all the servers of one
// store, and in the status of objects.
//
// Every server knows the proxies that are connected to it. Its Reporter writes that
// down in short on the side (side/status/replica/<id>, under a lease that ends with
// the server), and which proxies it has met (side/status/proxy/<node>). A View puts
// the reports of all servers together with what this one knows by itself, for those
// who wait for a change. The Writer, which one server of all runs at a time, makes
// conditions of it: Accepted, Programmed and Rejected, in the status of each object
// that has changed, until all proxies that the change concerns have taken it.
//
// What is written is bounded by time and not by changes: a report a second and
// server, and maxWrites statuses a second, each of which holds what is true then.
// Where nothing happens nothing is looked at.
package propagation
