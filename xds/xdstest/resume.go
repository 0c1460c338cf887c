package xdstest

import "maps"

// resume puts a new client into the state of an earlier one at the end of its stream. It holds
// the same and subscribes as a reconnecting proxy does, with its versions, the types in any
// order.
func (c *Client) resume(earlier *Client) {
	earlier.mu.Lock()
	types := maps.Clone(earlier.types)
	earlier.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for typeURL, was := range types {
		t := c.typ(typeURL)
		t.held, t.subscribed = maps.Clone(was.held), maps.Clone(was.subscribed)
		t.wildcard, t.version = was.wildcard, was.version
		initial := map[string]string{}
		for name, h := range t.held {
			initial[name] = h.Version
		}
		c.send(clientRequest{
			typeURL: typeURL, names: t.names(), subscribe: t.names(), version: t.version, initial: initial,
		})
	}
}
