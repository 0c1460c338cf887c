// Package aggregate reads several registries as one (Istio:
// pilot/pkg/serviceregistry/aggregate). It answers questions from all of them
// and owns their lives; rows do not pass through it: each registry hands over
// its own, under its own shard.
//
// The order of registries is that in which they were added, with those of
// Kubernetes before the others: where several could answer, the first does.
package aggregate
