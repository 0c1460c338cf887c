// Package config is the model of what users write: a Config is metadata and a
// typed spec of istio.io/api, a Key names it, a GroupVersionKind says what it
// is.
//
// The package also reads and writes objects in the shape that Kubernetes gave
// them. Decode reads files: it splits them into documents, turns each into
// JSON, and decodes that strictly, into a spec by protojson; where this fails
// it walks the document again and names every fault with its field. ToJSON,
// ToYAML and FromJSON are for single objects. Which kinds there are is told by
// a Resolver, such as the Type method of a schema.Set:
//
//	documents, err := config.Decode("shop.yaml", data, schema.Pilot().Type)
package config
