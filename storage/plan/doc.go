// Package plan decides what operations do to the objects there are: whether
// each may go ahead, what it makes of its object, and what it reports. The
// stores share it, so that they cannot differ in it; it does no I/O and keeps
// nothing.
//
// A store makes a Batch of operations (New), finds the objects of its Keys as
// of one version, has it decided (Decide), and commits the Steps as one change
// if those objects are still what they were.
package plan
