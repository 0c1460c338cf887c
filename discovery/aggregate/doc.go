// Package aggregate reads several registries as one (Istio:
// pilot/pkg/serviceregistry/aggregate). It answers queries from all of them, and runs
// them. Rows do not pass through it: each registry hands over its own, under its own
// shard.
//
// Registries are ordered as they were added, with those of Kubernetes before the
// others. If several could answer a query, the first does.
package aggregate
