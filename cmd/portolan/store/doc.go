// Package store has the commands about the store of a server: its state, members, backups and
// quarantine, and what an upgrade needs.
package store
