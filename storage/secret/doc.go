// Package secret has the content of a Secret, which is Kubernetes': certificates with
// their keys, authorities, and anything else that only some may read.
//
// A Secret comes with its data in the clear, in a request. Before it is stored, package
// sealing replaces the data by a sealed box (package seal) and by what everybody may know
// of it: the names of the entries, and what the certificates say. Only that form is in the
// store, in caches and in backups. Documents and the history have it without the box (Spec.Shown).
package secret
