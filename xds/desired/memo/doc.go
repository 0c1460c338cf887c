// Package memo shares built resources by what they were built from, and finds the
// resources that a changed row concerns.
//
// A Built is one resource with the queries that built it, and their answers. Another
// class of proxies, or the same one later, shares it if its view gives the same
// answers. Build finds a resource that holds in a view, or makes one. The memo is
// indexed both ways: a Built knows its reads, and a row knows its readers (Readers).
//
// Compose puts a resource together from others, once for all that have the same parts; a
// Sum compares parts without a look at each.
//
// Users of a Built are counted, and the last one removes it.
package memo
