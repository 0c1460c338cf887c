// Package etcdtest starts etcd servers for tests: real ones, in the test's own
// process, each with a directory of its own, on a fast clock and without
// fsync. What they start they stop when the test ends.
package etcdtest
