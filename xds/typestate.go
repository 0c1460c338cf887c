package xds

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// typeState is the state of one type on a connection: its subscription, and how far the
// proxy has come with it.
type typeState struct {
	url          string
	subscription *protocol.Subscription
	names        nameset.Set // the names last charged to the budget
	unanswered   int         // the count of unanswered names last charged to the budget
	counts       sentCounters
	message      string // the message of the last rejection that handle logged
	logged       logged
	refused      int // how many requested secrets the proxy was not given at the last look
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

// maxRejections bounds the rejections that are logged at one time.
const maxRejections = 16

// logged remembers logged rejections by the name of the resource. A resource that is
// rejected again, or another version of it with the same message, is not logged again.
type logged struct {
	rejected map[string]rejectedForm
	until    int64              // the newest revision of a logged rejection
	last     *progress.Rejected // the first of the rejections at the last look
}

// rejectedForm is a rejected version of a resource, and the proxy's message.
type rejectedForm struct{ version, message string }

// logRejections logs each new rejection of a type. It logs a resource again only after
// the proxy has acknowledged all of a later revision.
func (c *Connection) logRejections(t *typeState) {
	if len(t.Rejections) == 0 {
		if t.State == protocol.Synced && t.AckedRevision > t.logged.until {
			t.logged = logged{}
		}
		return
	}
	if t.logged.last == &t.Rejections[0] {
		return // nothing is new
	}
	t.logged.last = &t.Rejections[0]
	said, more := 0, 0
	for _, r := range t.Rejections {
		last, known := t.logged.rejected[r.Name]
		if t.logged.rejected == nil {
			t.logged.rejected = map[string]rejectedForm{}
		}
		t.logged.rejected[r.Name] = rejectedForm{r.Version, r.Message}
		if known && (last.version == r.Version || last.message == r.Message) {
			continue
		}
		t.logged.until = max(t.logged.until, r.Revision)
		if said == maxRejections {
			more++
			continue
		}
		said++
		c.logger.Warn("proxy refuses a resource, and goes on with what it had", "proxy", c.note.Node(), "type", t.Name, "resource", r.Name,
			"objects", config.Names(r.Objects), "revision", r.Revision, "err", progress.Shorten(r.Message, maxLogged))
	}
	if more > 0 {
		c.logger.Warn("proxy refuses more resources", "proxy", c.note.Node(), "type", t.Name, "more", more)
	}
}
