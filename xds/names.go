package xds

import (
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
	if n := t.subscription.Unanswered(); n != t.unanswered {
		t.unanswered = n
		if err := c.admitted.Keep(t, encode.PerName*int64(n)); err != nil {
			return err
		}
	}
	names := t.subscription.Names()
	if names == t.names {
		return nil
	}
	c.admitted.Drop(requestedNames{t.url, t.names})
	t.names = names
	return c.admitted.Keep(requestedNames{t.url, names}, names.Bytes())
}
