// Package seal encrypts small values, such as private keys, for a place that others may
// read. Each value has a data key of its own, and a key of a Ring, the sealing key, seals
// the data key. When the sealing key changes, the data keys stay.
//
// Both are sealed by AES-256-GCM (NIST SP 800-38D) with random nonces. A value is bound to
// a context, such as the name of its object: it cannot be opened under another.
package seal
