// Package record has the JSON shapes of the history of the config API: one
// record for every change of the store, newest first.
//
//	GET /apis/portolan.io/v1/records?kind=VirtualService&namespace=shop&name=reviews&limit=10
//
// The parameters of a Query narrow the answer; a record shows only the changes of the
// selected objects. Objects are in the canonical API version of their kind.
package record
