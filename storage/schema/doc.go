// Package schema says which kinds of objects exist and what a valid one is:
// names, API versions, message type, scope and validation. Pilot returns the
// kinds that configure the mesh, a Set finds among them.
//
// Each kind has a file of its own: a definition with its names, the table of
// the spec's fields that are served, and a check of its rules. Schema.Validate
// runs, in this order, the checks of metadata, those of the kind, and a walk
// over the spec that finds every field that is set and not in the table, so
// that nothing a user writes is ignored without a word. A field that a new
// version of the API brings is not in the table either, and is named.
//
//	warnings, err := schema.Pilot().Kind(object.GroupVersionKind).Validate(object)
package schema
