// Package cachetest is the suite that every cache of configuration passes.
//
//	func TestCache(t *testing.T) {
//		cachetest.Run(t, func(t testing.TB) cachetest.Subject { ... })
//	}
//
// To write more tests of one kind of cache, open a Rig on a Subject: it runs the cache
// and its worker, changes the store, and waits for the expected snapshot. Benchmark
// measures the basic figures.
package cachetest
