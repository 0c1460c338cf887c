// Package encoded makes responses of xDS of bytes that are built once and sent to
// every client that is to have them.
//
// A response is a list of resources, in the order of their names, and little
// else. A [Cache] cuts the list into runs, at places that the resources
// themselves determine, and keeps the bytes of each run for as long as it is
// asked for: two clients that are to have the same share all of it, two whose
// resources differ in a few share the rest, and one that is sent a long list
// again for one change in it costs the run with the change. What is of one stream
// alone, such as the nonce, comes after in a buffer of its own; fields of a
// message may come in any order.
//
// The [Codec] has gRPC send a [Message] as the buffers it consists of, without a
// copy: a client that is slow to read holds on to shared bytes. A server made
// without that codec sends the same, at the cost of decoding it first.
package encoded
