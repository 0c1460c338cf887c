// Package sealing seals and opens the secrets of a store with the keys of a server. A file
// of the server holds the keys (package seal). The store says which key seals, for all
// servers (Record): a server without that key says so and seals nothing.
//
// A key is replaced in steps, and an operator may stop after each: add a new key to the
// file of one server (Sealer.AddKey), import it on the others (Sealer.Import), make it the
// key that seals (Sealer.Use), and at last seal every secret anew (Sealer.Reseal).
package sealing
