// Package order decides what goes to one client next, of all types: it makes
// before it breaks. It joins the sessions of package stream, one for each type,
// and like them is a pure state machine: no I/O, no locks, no clock but the times
// that it is told.
//
// The owner of a stream passes what the client should have to Flow.Offer, what
// the client says to Flow.Request, and sends what Flow.Responses yields; at
// Flow.Wake it asks again though nothing happened. The rules:
//
//   - A resource that names clusters new to the client goes out once the client
//     has these (ready.go): it has acknowledged them, and the endpoints of those
//     that wait for endpoints; where it resolves host names by itself it is given a
//     moment. All else goes on meanwhile. A limit bounds the wait (gate.go).
//   - A client that knows of clusters only from what leads there is told of them
//     first in what it has already; it gives up by itself what nothing leads to any
//     more (announce.go).
//   - A resource is withdrawn once nothing refers to it that the client has or is
//     being sent, again within a limit; what a client has because it refused
//     something newer holds for as long as it does (withdraw.go).
//   - A resource that is sent has its children sent again; when it is withdrawn,
//     the client gives these up by itself (children.go).
//   - Scoped resources, the virtual hosts of a route configuration, go out only to
//     a client that has acknowledged what they live in, and all changes within one
//     scope in one response (children.go).
//
// Everything is decided by looking at what is not settled, so that the cost
// follows the change. A type of which all is settled rests: a change of others does
// not so much as look at it (rest.go).
package order
