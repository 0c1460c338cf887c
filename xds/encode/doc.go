// Package encode makes xDS responses from bytes that are built once and sent to all
// clients that need them.
//
// A response is mostly a list of resources, in the order of their names. A [Cache] cuts
// the list into runs, at places that the resources themselves determine, and keeps the
// bytes of each run while clients need it. Two clients with the same list share all of
// it, and two whose lists differ in a few resources share the rest. A long list with
// one change costs the run with the change. Fields of one stream alone, such as the
// nonce, follow in a buffer of their own; the fields of a message may come in any
// order.
//
// The [Codec] makes gRPC send a [Message] as the buffers it consists of, without a copy.
// So while a client is slow to read, it keeps only shared bytes in memory.
package encode
