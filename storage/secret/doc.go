// Package secret defines the content of a Secret, as in Kubernetes: certificates with their
// keys, authorities, and anything else that only some may read.
//
// A request has the data of a Secret in the clear. Before the Secret is stored, package
// sealing replaces the data by a sealed box (package seal) and a public part: the names of
// the entries, and the fields of the certificates. Only that form is in the store, in
// caches and in backups. Documents and the history have it without the box (Spec.Shown).
package secret
