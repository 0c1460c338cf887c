// Package etcdtest starts etcd servers for tests: real ones, in the test's process, each
// with its own directory, on a fast clock and without fsync. The package stops them when
// the test ends.
package etcdtest
