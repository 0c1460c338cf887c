// Package verdict says what is odd about an object beside others: a host that an older
// VirtualService has already, a destination that does not exist, a Gateway that no proxy runs.
// Each object has a list of verdicts. A verdict has a stable code (codes.go), the field, what
// is wrong, what to do, and the other object concerned.
//
// This package has what judges need: the facts, and a Judge. Judges read the facts through it,
// and it records the rows that they read. The functions that judge a kind are in the packages
// below, in the file of the kind: routing, destination, workload, security.
//
// A Verdict is derived. A Finding (package finding) is its JSON form, and advice is a verdict on
// what an apply would write. The texts that users read are beside the conditions; Title and
// Effect of a code are for docs/operations/warnings.md.
//
// Package index has the verdicts of all objects. Its cost follows what changed: only readers of
// a changed row are judged again. The rows are those of package mesh, and some that only
// verdicts need (facts.go). A dry run uses the same code, on facts that were not published. A
// registry reports what it knows about the objects that it reads (discovery.Advisor). Each
// server reports what only a build can find out (index/unbuilt.go).
package verdict
