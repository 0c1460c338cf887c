// Package cachetest is the suite that every cache of configuration passes.
//
//	func TestCache(t *testing.T) {
//		cachetest.Run(t, func(t testing.TB) cachetest.Subject { ... })
//	}
//
// Open a Rig on a Subject to write more tests of one kind of cache: it runs the cache and
// its worker, changes the store, and waits for the expected snapshot. Benchmark is the
// first set of figures.
package cachetest
