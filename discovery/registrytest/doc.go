// Package registrytest is the suite that every registry passes: what a
// discovery.Instance answers and hands over, whatever its source.
//
//	func TestConformance(t *testing.T) {
//		registrytest.Run(t, func(t *testing.T, xds discovery.XDSUpdater, worker *cache.Worker) registrytest.Source { ... })
//	}
//
// A Source brings the registry, and knows how to have its source offer services.
// The suite runs the worker and the registry, and stops them.
package registrytest
