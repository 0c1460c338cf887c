// Package aggregate reads several registries as one (Istio:
// pilot/pkg/serviceregistry/aggregate). It answers queries from all of them, and runs them.
// Rows do not pass through it: each registry publishes its own, under its own shard.
//
// Kubernetes registries come first, then the others, each in the order of adding. If
// several could answer a query, the first does.
package aggregate
