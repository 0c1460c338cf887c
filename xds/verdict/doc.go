// Package verdict derives what is odd about an object beside others: a host that an
// older VirtualService has already, a destination that is not there, a Gateway that no
// proxy runs. Each object has a list of verdicts, and a verdict has a stable code
// (codes.go), the field, what is so, what to do, and the other object concerned.
//
// An Index has the verdicts of all objects as of some Facts. Index.Next derives the
// next one at the cost of what changed: each object is judged by functions that record
// the rows they read (judge.go), and only readers of a changed row are judged again
// (index.go, rows.go). The rows are those of package mesh, and some that only verdicts
// need. What would be is judged by the same code: Next of facts that nobody published.
//
// A function that judges a kind is in the file of the kind. What a registry knows
// about the objects that it reads, it says by itself (discovery.Advisor). What only a
// build can know, each server reports (unbuilt.go).
package verdict
