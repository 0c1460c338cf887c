// Package raw sends and receives gRPC messages as their bytes, and finds fields
// in them without decoding the rest.
//
// A server does so by a Codec. A client has a Stream, which is as much of HTTP/2
// as one stream needs and belongs to one goroutine: of a thousand clients on one
// machine each is two system calls for a message and its acknowledgement, where
// gRPC has several goroutines wake one another for it.
package raw
