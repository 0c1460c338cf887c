// Package rest is the config API over HTTP, in the shape of Kubernetes: a cache answers
// reads and watches, and writes go to a store.
//
// A request enters through Handler. guard checks host and origin, resource turns the
// path into a call, and admit authenticates and authorizes it. Then the method of the
// verb runs: get, list, watch, create, replace, remove, or apply for a batch. Each
// returns an error, and only statusOf turns errors into HTTP. A write is decoded and
// validated whole before anything is written, so that one answer names all faults. It
// is answered once the cache shows it, within a bound, so that clients read their own
// writes.
//
// The newest snapshot of the cache answers reads, a moment behind the store. That
// includes the GET of one object without a resourceVersion, for which Kubernetes would
// ask its store. A client that needs newer data sets resourceVersion or consistent=true.
// It then waits or must try again (freshness.go), and never gets older data.
//
// Answers have the form that the client accepts (negotiate.go): an object as it is, its
// metadata alone, or a row of a Table, whose columns package table defines; in JSON or YAML,
// and secrets also in protobuf. Lists come in pages of one revision (page.go). The text of an
// object in one form is made once for all lists and watches of a snapshot (frames.go).
//
// A watch follows the snapshots of the cache one by one (Source.Next) and sends the
// difference of two neighbours as one piece. The objects of one batch share a
// resourceVersion, so a watch from N begins with the events of revision N again.
//
//	server, err := rest.New(rest.Options{Store: store, Cache: mirror, History: store})
//	...
//	http.Serve(listener, server.Handler())
//
// served.go joins the object in the store with its status, which the store keeps
// elsewhere. The resourceVersion is the greater of both revisions, so a change of either
// is an event of watches, and a precondition covers both (precondition.go). Clients can
// set the health of a WorkloadEntry, by PUT of .../status (status.go).
//
// A History answers questions about the past: records of who changed what, and lists of
// a revision that the cache no longer has (resourceVersionMatch=Exact).
//
// If the cache has other sources than the store, a list with source=store has only the
// objects of the store, and a delete deletes the object of the store (sources.go).
//
// Options.Side has the kinds of Kubernetes' own: a second Server serves them at the paths of the
// first (side.go). Clients may send them as protobuf messages (message.go). A namespace is
// deleted with what both stores have in it (namespace.go).
//
// Package batch has the JSON shapes of the batch endpoint, and package record those of
// the history. Package client is the client of this API.
package rest
