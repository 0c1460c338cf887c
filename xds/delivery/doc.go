// Package delivery decides what one client is sent next, of all types: make before break.
// A Sequencer joins the subscriptions of package protocol, one for each type. Like them it
// is a state machine without I/O and without a lock of its own. Its callers pass the time.
//
// The owner of a stream passes what the client should have to Sequencer.SetDesired, and
// requests to Sequencer.Request, and sends what Sequencer.Responses yields. At
// Sequencer.Wake it calls Responses again though nothing has happened. A route to a new
// cluster goes this way:
//
//	SetDesired  cluster and route are due: their desired form is not the acked one
//	Responses   additions allows the cluster and holds the route; next takes a response
//	            with the cluster from Subscription.Next
//	Request     the client requests the endpoints, which Responses then sends
//	Request     acknowledged ends the warming of the cluster, by the ACK of its endpoints
//	Responses   missing finds that the client can use the cluster: the route goes
//	            removals lets the old cluster go once the client has acknowledged the route
//
// The needs of the resources decide the order:
//
//   - A resource with a need of kind Traffic waits until the client can use the cluster:
//     it has acknowledged the cluster, and the endpoints and secrets that this needs. A
//     cluster with host names gets a moment more, to resolve them (warming.go). A limit
//     bounds the wait (held.go). Resources without such a need do not wait.
//   - What a resource needs is sent again with it, except secrets: an Envoy that is sent a
//     cluster waits for its endpoints anew. When a resource is removed, the client itself
//     drops what that resource needed, again except secrets (needs.go).
//   - A removal waits until no resource that the client has, or is being sent, needs the
//     removed one, again within a limit. A resource that the client keeps because it
//     rejected a newer one holds removals without limit (withdraw.go).
//   - Virtual hosts live within a route configuration. They are sent only to a client that
//     has acknowledged it, and all changes within one go in one response
//     (virtualhosts.go).
//   - Resources of one type that work together change in turns (turns.go).
//   - gRPC clients learn of clusters only from routes. New clusters are announced in the
//     routes that the client has (preannounce.go).
//
// The sequencer looks only at what is not settled, so the cost follows the change. A type
// with everything settled is idle: changes of other types do not look at it (idle.go).
package delivery
