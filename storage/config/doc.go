// Package config holds the objects that users write: a Config is metadata and a
// typed spec, a Key names it, and a GroupVersionKind names its kind.
//
// The package also reads and writes objects in the shape of Kubernetes. Decode
// reads files: it splits them into documents, turns each into JSON, and decodes
// that strictly. The Codec of the kind reads the spec, and where it does not fit
// names every fault by its field. ToJSON, ToYAML and FromJSON are for single
// objects. A Resolver, such as the Type method of a schema.Set, tells which kinds
// there are:
//
//	documents, err := config.Decode("shop.yaml", data, schema.Pilot().Type)
package config
