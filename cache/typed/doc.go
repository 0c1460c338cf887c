// Package typed asks a source of configuration the questions that each kind
// calls for: which objects of it concern a workload, and in which order they
// count.
//
//	configs := typed.Over(cache.Snapshot(), "istio-system")
//	for _, gateway := range configs.Gateways(proxy.Labels) { ... }
//
// Every answer is in a fixed order, config.Compare ("oldest wins") unless the
// method says more, so it may shape what is generated.
package typed
