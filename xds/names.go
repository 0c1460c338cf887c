package xds

import (
	"fmt"

	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/encode"
)

// requestedNames is the key of the requested names of one type. Streams that request the same
// names share them.
type requestedNames struct {
	typeURL string
	names   nameset.Set
}

// chargeNames charges the client's subscription to a type to its stream; it fails if that is
// too much.
func (c *Connection) chargeNames(t *typeState) error {
	names := t.subscription.Names()
	if n := t.subscription.Unanswered(); n != t.unanswered {
		if t.unanswered = n; n > 0 {
			if err := c.admitted.Keep(t, encode.PerName*int64(n)); err != nil {
				return err
			}
		} else {
			c.admitted.Drop(t)
		}
	}
	if names == t.names {
		return nil
	}
	had := t.names
	t.names = names
	if c.nameBytes += names.Bytes() - had.Bytes(); c.nameBytes > c.server.Gate.StreamMemory() {
		return c.admitted.TooMuch(fmt.Sprintf("%d names of type %s", names.Len(), t.url))
	}
	var err error
	if names.Len() > 0 {
		err = c.admitted.Keep(requestedNames{t.url, names}, names.Bytes())
	}
	if had.Len() > 0 {
		c.admitted.Drop(requestedNames{t.url, had})
	}
	return err
}

// releaseNames releases all subscriptions of the client.
func (c *Connection) releaseNames() {
	for _, t := range c.types {
		c.admitted.Drop(t)
		c.admitted.Drop(requestedNames{t.url, t.names})
	}
}
