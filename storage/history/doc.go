// Package history derives the past of objects from their present and the records of their
// changes. All stores use it, so that they cannot differ in it; it does no I/O and keeps
// nothing.
//
// A store gathers an Excerpt as of one revision and asks it: Changes and Records for what
// happened, At for what was. Expired says which records may go.
package history
