// Command benchstore measures the store and its cache beside a plain client of etcd, both on
// one embedded member as `portolan serve` runs it: a child process on a unix socket that syncs
// every write to the disk. `make bench-store` runs it. docs/performance.md has the figures and
// explains them.
//
// Only ratios mean something, since any other work on the machine slows both sides. So the two
// sides of a ratio take turns in short slices, whose order changes with every pair
// (compare.go). The ratio is the median of the pairs' ratios.
//
//	idle.go     an idle server and its store process, beside an idle etcd
//	update.go   one update with its record of history, beside the same transaction by hand
//	visible.go  from a put until the cache shows it, beside put to watch event
//	cold.go     a cache from nothing to HasSynced, beside list and decode; the size of a cached object
//	change.go   the allocations of one change in a small cache and in a large one
package main
