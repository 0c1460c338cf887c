// Package sealing seals the secrets of a store, and opens them, with the keys that a server
// has. The keys are in a file of the server (package seal). The store says which of them
// seals, for all servers (Record): one that lacks it says so and seals nothing.
//
// A key is replaced in steps, each of which may be the last: a new one is added to the file
// of one server (Sealer.AddKey), imported by the others (Sealer.Import), made the one that
// seals (Sealer.Use), and at last every secret is sealed anew (Sealer.Reseal).
package sealing
