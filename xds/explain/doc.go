// Package explain answers what a proxy does with a request, and because of which objects
// (Serve). It builds what a server would send the proxy (from.go, or the proxy as it is),
// asks package simulate, and finds the objects behind each part of the answer.
//
// The JSON form of an Explanation is an API, which the command line reads too.
package explain
