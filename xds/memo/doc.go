// Package memo keeps built resources by what they were built from, and finds
// the resources that a changed row concerns.
//
// A Trace is one built resource with everything that was read to build it and
// the answers. Whoever would get the same answers, another class of proxies or
// the same at a later time, shares the resource instead of building it: Build
// finds a trace that holds in a view, or makes one. The memo is indexed both
// ways: a Trace knows its reads, a row knows its readers (Readers).
//
// A Composed is a resource that was put together from others: Compose makes it
// once for all who have the same parts, which a Sum tells without a look at each
// of them.
//
// Both are counted by their users, and forgotten with the last.
package memo
