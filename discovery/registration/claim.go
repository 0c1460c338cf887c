package registration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// stream is the stream of a proxy that asks to be registered. Of these fields only state and
// reason change.
type stream struct {
	proxy *discovery.Proxy
	since time.Time
	order int // of its Join among all

	state  State
	reason string
}

// account returns who the history says has written the entry.
func (s *stream) account() string { return cmp.Or(s.proxy.Identity, s.proxy.ID) }

func (s *stream) become(state State, reason string) { s.state, s.reason = state, reason }

// mark returns the annotations of the entry that is this stream's.
func (s *stream) mark(server string) [3]string {
	return [3]string{server, s.since.UTC().Format(time.RFC3339Nano), s.proxy.ID}
}

// markOf returns the mark of an entry; the zero mark if no registration has written it so.
func markOf(entry *config.Config) [3]string {
	return [3]string{entry.Annotations[ServerAnnotation], entry.Annotations[ConnectedAnnotation], entry.Annotations[NodeAnnotation]}
}

// claim is one entry, and the streams of this server that ask for it. The mutex of the Registrar
// guards it; what a step writes, only the next step reads.
type claim struct {
	key     config.Key
	streams []*stream
	holder  *stream // the stream that has the entry, or is to get it; nil for none
	group   *config.Config

	lease   storage.LeaseID // 0 for none
	renewed time.Time
	written *written // what this server last wrote; nil for nothing, or if that is gone
	failure string   // why the last call of the store failed
	next    action
}

// written is an entry that was written: for which stream, and of which version of the group.
type written struct {
	by    *stream
	group string
}

// action is what is to be done for a claim.
type action struct {
	verb    verb
	object  *config.Config // to put
	version string         // of the entry to remove
	by      *stream
	group   string
}

type verb int

const (
	rest verb = iota
	renew
	put
	remove
)

// choose chooses the stream that has the entry: the newest of a node that may have it. A node
// that has it keeps it while it has a stream. The others are refused.
func (c *claim) choose(o Options) {
	c.group = nil
	newest := map[string]*stream{} // by node
	var order []*stream
	for _, s := range c.streams { // in the order in which they joined
		if former := newest[s.proxy.ID]; former != nil {
			former.become(Replaced, "the proxy has opened a newer stream")
		}
		newest[s.proxy.ID] = s
	}
	for _, s := range c.streams {
		if newest[s.proxy.ID] == s && c.admit(s, o) {
			order = append(order, s)
		}
	}
	former := c.holder
	c.holder = nil
	for _, s := range order {
		if c.holder == nil || former != nil && former.proxy.ID == s.proxy.ID {
			c.holder = s
		}
	}
	for _, s := range order {
		if s != c.holder {
			s.become(Refused, taken(c.key, c.holder.proxy.ID))
		}
	}
	if c.holder != nil {
		c.group = o.Group(groupOf(c.holder.proxy))
	}
}

// admit says whether a stream may have the entry.
func (c *claim) admit(s *stream, o Options) bool {
	group := o.Group(groupOf(s.proxy))
	if group == nil {
		s.become(Waiting, fmt.Sprintf("the WorkloadGroup %s/%s, which is not there", s.proxy.Namespace, s.proxy.Group))
		return false
	}
	if err := permit(s.proxy, group, o.Unproved); err != nil {
		s.become(Refused, err.Error())
		return false
	}
	return true
}

func taken(key config.Key, node string) string {
	return fmt.Sprintf("%s is registered by the proxy %s, which is connected: give the two machines different addresses or networks", key, node)
}

// decide compares the entry with what the holder is to have, and returns what to do.
func (c *claim) decide(o Options) action {
	entry := o.Entry(c.key)
	if c.holder == nil {
		if c.written != nil && entry != nil && markOf(entry) == c.written.by.mark(o.Server) && slices.Contains(c.streams, c.written.by) {
			return action{verb: remove, version: entry.ResourceVersion}
		}
		return action{}
	}
	s := c.holder
	mine := c.written != nil && c.written.by == s
	switch {
	case entry == nil:
		return c.putting(o, storage.Absent)
	case markOf(entry) == s.mark(o.Server):
		if !mine || c.lease == 0 || c.written.group != c.group.ResourceVersion {
			return c.putting(o, entry.ResourceVersion)
		}
		s.become(Registered, c.unheard())
		if time.Since(c.renewed) < o.TTL/renewals {
			return action{}
		}
		return action{verb: renew}
	case entry.Annotations[NodeAnnotation] == s.proxy.ID && mine:
		s.become(Replaced, "the proxy has opened a newer stream, to another server")
		return action{}
	case entry.Annotations[NodeAnnotation] == s.proxy.ID, mine && entry.Annotations[NodeAnnotation] == "",
		entry.Annotations[NodeAnnotation] != "" && entry.Annotations[ServerAnnotation] == o.Server:
		return c.putting(o, entry.ResourceVersion)
	case entry.Annotations[NodeAnnotation] != "":
		s.become(Refused, taken(c.key, entry.Annotations[NodeAnnotation]))
	default:
		s.become(Refused, fmt.Sprintf("%s is there, and no registration has made it: delete it, or have the proxy not ask for a group", c.key))
	}
	return action{}
}

// putting returns the action that writes the entry for its holder, if it is at a version.
func (c *claim) putting(o Options, version string) action {
	s := c.holder
	object, _ := EntryOf(c.group, s.proxy)
	object.ResourceVersion = version
	mark := s.mark(o.Server)
	object.Annotations[ServerAnnotation], object.Annotations[ConnectedAnnotation], object.Annotations[NodeAnnotation] = mark[0], mark[1], mark[2]
	if c.failure != "" {
		s.become(Waiting, "the store: "+c.failure)
	}
	return action{verb: put, object: object, by: s, group: c.group.ResourceVersion}
}

// unheard says which labels of the node its entry does not have; empty for none.
func (c *claim) unheard() string {
	_, refused := EntryOf(c.group, c.holder.proxy)
	if len(refused) == 0 {
		return ""
	}
	return fmt.Sprintf("without the node's labels %s: name them in the annotation %s of the group, or set them in spec.metadata.labels", strings.Join(refused, ", "), NodeLabelsAnnotation)
}
