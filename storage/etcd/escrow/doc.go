// Package escrow wraps the keys of a store for a backup: the sealing keys of its secrets and
// the authority of its members. A [Lock], from a passphrase or a key file of the operator,
// wraps [Keys] into an [Envelope], which package backup puts into the file.
//
//	lock, err := escrow.KeyFile("backup.key")
//	envelope, err := escrow.WithKeys(keys, lock)
//	...
//	keys, err := envelope.Open(lock)
package escrow
