// Package schema defines the kinds of objects: names, API versions, codec, scope and
// validation. Pilot returns the kinds that configure the mesh; a Set finds a kind.
//
// Each kind has a file of its own: a definition with its names, the table of the spec's
// fields that are served, and a check of its rules. Schema.Validate checks the
// metadata, runs the check of the kind, and walks over the spec. The walk warns of
// every field that is set and not in the table, so that no field is ignored silently.
// The fields of a newer version of the API are not in the table either.
// Schema.UnservedSecurity tells which of these warnings are about security.
//
//	warnings, err := schema.Pilot().Kind(object.GroupVersionKind).Validate(object)
package schema
