// Package store has the commands about the store of a server: its state, members, backups and
// quarantine, what an upgrade needs, and what a running server logs.
package store
