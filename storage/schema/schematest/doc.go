// Package schematest draws odd objects that validation accepts: extremes of numbers
// and times, strange strings, regular expressions, one of a thing and hundreds.
//
//	d := schematest.NewDrawer(seed)
//	objects := d.Batch(100)
//
// A drawer begins with a good object of each served kind, and changes one field after
// another by reflection. It keeps a change if validation accepts the object, and does
// not warn that the field has no effect.
package schematest
