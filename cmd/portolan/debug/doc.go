// Package debug has the commands that collect what a server tells of itself, for a report of
// a fault. A part is one file of the archive; parts.go has them all, and where each comes
// from. Every text passes the redaction on its way into the archive.
package debug
