// Package raw sends and receives gRPC messages as their bytes, and finds fields in them without
// decoding the rest.
//
// A server uses a Codec. A client uses a Stream, which implements as much of HTTP/2 as one
// stream needs and belongs to one goroutine. With it, a message and its acknowledgement cost
// two system calls. With gRPC, several goroutines would wake one another for each, and a test
// has a thousand clients on one machine.
package raw
