// Command benchstore measures the store and its cache beside a plain client of
// etcd, both on one embedded member as `portolan serve` runs it: a child process
// on a unix socket that syncs every write to the disk. `make bench-store` runs
// it; docs/performance.md has the figures and what they are made of.
//
// Only ratios mean something, for any other work on the machine slows both
// sides. So the two sides of a ratio take turns in short slices, the order of
// which changes with every pair (compare.go), and the ratio is the median of
// the ratios of the pairs.
//
//	idle.go     what a server and its store process take that have nothing to do
//	update.go   one update with its record of history, beside the same transaction by hand
//	visible.go  from a put until the cache shows it, beside put to watch event
//	cold.go     a cache from nothing to HasSynced, beside list and decode; what an object takes
//	change.go   what one change allocates in a small cache and in a large one
package main
