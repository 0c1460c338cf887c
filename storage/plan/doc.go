// Package plan decides what operations do to stored objects: whether each is allowed, what
// its object becomes, and what the result says. All stores use it, so that they cannot
// differ; it does no I/O and keeps no state.
//
// A store makes a Batch of operations (New), reads the objects of its Keys at one version,
// and gets Steps from Decide. It commits them as one change if those objects have not
// changed since.
package plan
