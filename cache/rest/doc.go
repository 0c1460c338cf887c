// Package rest is the config API over HTTP, in the shape of Kubernetes': reads
// and watches are answered by a cache, writes go to a store.
//
// A request enters through Handler: guard (which host, which origin), then
// resource, which turns the path into a call, then admit (who is it, may they),
// then the method of the verb: get, list, watch, create, replace, remove, or
// apply for a batch. Each returns an error, and statusOf alone makes HTTP of
// errors. Writes are decoded and validated whole before anything is written, so
// that one answer names all faults; they are answered once the cache shows
// them, within a bound, so that a client reads its own writes.
//
// Reads are answered by the newest snapshot of the cache, a moment behind the
// store; also the GET of one object without a resourceVersion, for which
// Kubernetes would ask its store. A client that needs more says so, by
// resourceVersion or consistent=true, and is made to wait or told to try again
// (get.go), never answered by something older.
//
// A watch follows the snapshots of the cache one by one (Source.Next) and sends
// the difference of two neighbours as one piece. The objects of one batch share
// a resourceVersion, and so a watch from N begins with the events of revision N
// again.
//
//	server, err := rest.New(rest.Options{Store: store, Cache: mirror, History: store})
//	...
//	http.Serve(listener, server.Handler())
//
// What clients see of an object is put together in served.go: what the store keeps
// of it, and its status, which the store keeps beside it. The resourceVersion is
// the greatest of the revisions of both, so a change of either is an event of
// watches, and a precondition is about both (storage.Op.Served). Of a status the
// health of a WorkloadEntry can be set, by PUT of .../status (substatus.go).
//
// The past is asked of a History: records of what was changed by whom, and lists
// of a revision that the cache keeps no longer (resourceVersionMatch=Exact).
//
// Package batch has the JSON shapes of the batch endpoint, package record those
// of the history; package client is the client of this API.
package rest
