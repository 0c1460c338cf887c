package xds

import (
	"fmt"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/encode"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// typeState is the state of one type on a connection: its subscription, and how far the
// proxy has come with it.
type typeState struct {
	url          string
	subscription *protocol.Subscription
	names        nameset.Set // the names last charged to the budget
	unanswered   int         // the count of unanswered names last charged to the budget
	counts       counters
	logged       map[string]loggedRejection // the last logged rejection, by the name of the resource
	loggedUntil  int64                      // the newest revision of a logged rejection
	refused      map[string]struct{}        // the secrets that noteRefusedSecrets found at its last call
	judged       nameset.Set                // the names at that call
	progress.Tracker
}

func (c *Connection) newTypeState(typeURL string, sub *protocol.Subscription) *typeState {
	name := c.served.nameOf(typeURL)
	t := &typeState{url: typeURL, subscription: sub, counts: c.server.metrics.countersOf(name)}
	t.Name = name
	return t
}

// typeState returns the state of a type, nil if the stream has none. A stream has few
// types.
func (c *Connection) typeState(typeURL string) *typeState {
	for _, t := range c.types {
		if t.url == typeURL {
			return t
		}
	}
	return nil
}

// requestedNames is the key of the requested names of one type. Streams that request the same
// names share them.
type requestedNames struct {
	typeURL string
	names   nameset.Set
}

// chargeNames charges the stream for the names that its client requests of a type. It fails
// if they cost too much.
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
	had := t.names
	t.names = names
	c.admitted.Drop(requestedNames{t.url, had})
	if c.nameBytes += names.Bytes() - had.Bytes(); c.nameBytes > c.server.Gate.StreamMemory() {
		return c.admitted.TooMuch(fmt.Sprintf("%d names of type %s", names.Len(), t.url))
	}
	return c.admitted.Keep(requestedNames{t.url, names}, names.Bytes())
}

// loggedRejection is a rejected version of a resource, and the proxy's message.
type loggedRejection struct{ version, message string }

// noteRejection says whether to log a rejection of a resource, or of a response if name is empty,
// and notes it as logged. It is news unless the last logged one has the same version or the
// same message.
func (t *typeState) noteRejection(name, version, message string) bool {
	if last, known := t.logged[name]; known && (last.version == version || last.message == message) {
		return false
	}
	if t.logged == nil {
		t.logged = map[string]loggedRejection{}
	}
	t.logged[name] = loggedRejection{version, message}
	return true
}

// maxRejections bounds the rejections that are logged at one time.
const maxRejections = 16

// logRejections logs the same words about a resource again only after the proxy has
// acknowledged all of a later revision.
func (c *Connection) logRejections(t *typeState) {
	if len(t.Rejections) == 0 {
		if t.State == protocol.Synced && t.AckedRevision > t.loggedUntil {
			t.logged = nil
		}
		return
	}
	fresh := 0
	for _, r := range t.Rejections {
		if !t.noteRejection(r.Name, r.Version, r.Message) {
			continue
		}
		t.loggedUntil = max(t.loggedUntil, r.Revision)
		if fresh++; fresh <= maxRejections {
			message := "proxy refuses a resource, and goes on with what it had"
			if !t.subscription.Has(r.Name) {
				message = "proxy refuses a resource, and has no earlier form of it"
			}
			c.server.logger.Warn(message, "proxy", c.note.Node(), "type", t.Name, "resource", r.Name,
				"objects", config.Names(r.Objects), "revision", r.Revision, "err", progress.Shorten(r.Message, maxLogged))
		}
	}
	if more := fresh - maxRejections; more > 0 {
		c.server.logger.Warn("proxy refuses more resources", "proxy", c.note.Node(), "type", t.Name, "more", more)
	}
}
