// Package registrytest is the suite that every registry must pass: what a discovery.Instance
// answers and publishes, whatever its source.
//
//	func TestConformance(t *testing.T) {
//		registrytest.Run(t, func(t *testing.T, xds discovery.XDSUpdater, worker *cache.Worker) registrytest.Source { ... })
//	}
//
// A Source has the registry, and makes the registry's source offer services. The suite runs
// the worker and the registry, and stops them.
package registrytest
