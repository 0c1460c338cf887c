// Package explain answers what a proxy does with a request, and which objects cause it (Serve),
// what the policies of a destination say about it (Check), and which calls a changed policy would
// newly refuse (Foresee).
// It builds what a server would send the proxy, connected or hypothetical (from.go), asks
// package simulate, and finds the objects behind each part of the answer.
//
// The JSON form of an Explanation is an API, which the command line reads too.
package explain
