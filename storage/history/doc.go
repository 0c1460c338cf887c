// Package history tells the past of objects from what they are and the records
// of what was done to them. The stores share it, so that they cannot differ in
// it; it does no I/O and keeps nothing.
//
// A store gathers a View as of one revision and has it read: Changes and
// Records for what happened, At for what was. What may go is told by Expired.
package history
