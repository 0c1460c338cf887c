// Package aggregate joins several registries into one (Istio:
// pilot/pkg/serviceregistry/aggregate). It runs them and answers queries from all of them.
// Rows do not pass through it: each registry publishes its own, under its own shard.
//
// Kubernetes registries come first, then the others, each in the order of adding. If several
// could answer a query, the first of them does.
package aggregate
