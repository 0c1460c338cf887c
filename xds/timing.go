package xds

import (
	"time"

	"github.com/portolan-mesh/portolan/xds/stream"
)

// timing is what a connection knows of one type: its session, when it was last
// sent to and last answered, and how well the proxy is in step.
type timing struct {
	url, name      string
	session        *stream.Session
	counts         sentOf
	sent, answered time.Time
	late           int // changes that went before what they lead to
	progress
}

func (s *DiscoveryServer) newTiming(typeURL string, session *stream.Session) *timing {
	name := s.typeName(typeURL)
	return &timing{url: typeURL, name: name, session: session, counts: s.metrics.of(name)}
}

// timing finds that of a type, nil where the stream has none. They are few.
func (c *Connection) timing(typeURL string) *timing {
	for _, t := range c.types {
		if t.url == typeURL {
			return t
		}
	}
	return nil
}
