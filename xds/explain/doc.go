// Package explain answers what a proxy does with a request, and which objects cause it (Serve).
// It builds what a server would send the proxy, connected or hypothetical (from.go), asks
// package simulate, and finds the objects behind each part of the answer.
//
// The JSON form of an Explanation is an API, which the command line reads too.
package explain
