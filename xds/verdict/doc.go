// Package verdict says what is odd about an object beside others: a host that an older
// VirtualService has already, a destination that is not there, a Gateway that no proxy
// runs. Each object has a list of verdicts, and a verdict has a stable code (codes.go),
// the field, what is so, what to do, and the other object concerned.
//
// This package has what judges need: the facts, and a Judge through whom they look at
// them, and who records the rows that they read. Functions that judge a kind are in the
// packages below, in the file of the kind: routing, destination, workload, security.
//
// Package index has the verdicts of all objects, and derives the next ones at the cost of
// what changed: only readers of a changed row are judged again. The rows are those of
// package mesh, and some that only verdicts need (facts.go). What would be is judged by
// the same code: facts that nobody published. What a registry knows about the objects that
// it reads, it says by itself (discovery.Advisor). What only a build can know, each server
// reports (index/unbuilt.go).
package verdict
