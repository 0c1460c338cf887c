// Package config is the model of what users write: a Config is metadata and a
// typed spec of istio.io/api, a Key names it, a GroupVersionKind says what it
// is. The package also reads and writes the Kubernetes shape of objects, in
// YAML and JSON.
package config
