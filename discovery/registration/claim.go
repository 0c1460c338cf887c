package registration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
)

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
	// departed is the last stream that has ended after its machine said that it leaves.
	departed *stream

	ends    time.Time       // when its lease is to end, since it has no stream; zero while it has one
	lease   storage.LeaseID // 0 for none
	renewed time.Time
	written *written // what this server last wrote; nil for nothing, or if that is gone
	failure string   // why the last call of the store failed
	told    told     // the last report that was written
	toldAt  time.Time
	next    action
}

// written is an entry that was written: for which stream, of which version of the group, and what
// the proxy asked for and did not get.
type written struct {
	by     *stream
	group  string
	lacked string
	stays  bool // it is under no lease
}

// action is what is to be done for a claim.
type action struct {
	verb    verb
	object  *config.Config // to put
	version string         // of the entry to remove
	why     string         // it is removed
	written written        // what is put
	told    told           // the report to write
}

type verb int

const (
	rest verb = iota
	renew
	put
	remove
	tell
	end
)

// choose chooses the stream that has the entry: the newest of a node that may have it. A node
// that has it keeps it while it has a stream. The others are refused.
func (c *claim) choose(o Options) {
	c.group = nil
	newest := map[string]*stream{} // by node
	var order []*stream
	for _, s := range c.streams { // in the order in which they joined
		if former := newest[s.proxy.ID]; former != nil {
			former.become(node.Replaced, "the proxy has opened a newer stream")
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
			s.become(node.Refused, taken(c.key, c.holder.proxy.ID, "which is connected"))
		}
	}
	if c.holder != nil {
		c.group = o.Group(groupOf(c.holder.proxy))
	}
}

// admit says whether a stream may have the entry.
func (c *claim) admit(s *stream, o Options) bool {
	if s.departed {
		s.become(node.Departed, "the machine has said that it leaves")
		return false
	}
	group := o.Group(groupOf(s.proxy))
	if group == nil {
		s.become(node.Waiting, fmt.Sprintf("the WorkloadGroup %s/%s, which is not there", s.proxy.Namespace, s.proxy.Group))
		return false
	}
	if err := permit(s.proxy, group, o.Unproved); err != nil {
		s.become(node.Refused, err.Error())
		return false
	}
	return true
}

func taken(key config.Key, node, since string) string {
	return fmt.Sprintf("%s is registered by the proxy %s, %s: give the two machines different addresses or networks", key, node, since)
}

// decide compares the entry with what the holder is to have, and returns what to do.
func (c *claim) decide(o Options) action {
	entry, s := o.Entry(c.key), c.holder
	if s == nil {
		return c.removing(entry, o)
	}
	mine := c.written != nil && c.written.by == s
	switch {
	case entry == nil && !s.ready.Load() && time.Since(s.since) < o.Patience:
		s.become(node.Waiting, "its listeners, which the proxy has not acknowledged yet")
		return action{}
	case entry == nil:
		return c.putting(o, nil)
	case entry.Annotations[health.RemovedAnnotation] != "":
		return c.keepingOut(o, entry)
	case markOf(entry) == s.mark(o.Server):
		if !mine || !c.written.stays && c.lease == 0 || c.written.group != c.group.ResourceVersion || c.written.stays != stays(entry) || s.ill() && !heeds(entry) {
			return c.putting(o, entry)
		}
		return c.keeping(o, entry)
	case entry.Annotations[NodeAnnotation] == s.proxy.ID && mine:
		s.become(node.Replaced, "the proxy has opened a newer stream, to another server")
		return action{}
	case entry.Annotations[NodeAnnotation] == s.proxy.ID, mine && entry.Annotations[NodeAnnotation] == "",
		entry.Annotations[NodeAnnotation] != "" && entry.Annotations[ServerAnnotation] == o.Server:
		return c.putting(o, entry)
	case entry.Annotations[NodeAnnotation] != "":
		s.become(node.Refused, taken(c.key, entry.Annotations[NodeAnnotation], fmt.Sprintf("which is connected to another server, or was within the last %v", o.TTL)))
	default:
		s.become(node.Refused, fmt.Sprintf("%s is there, and no registration has made it: delete it, or have the proxy not ask for a group", c.key))
	}
	return action{}
}

// heeds says whether it is decided whether reports matter to an entry. Without a probe they do from
// the first on that says that the machine is not healthy: somebody has drained it.
func heeds(entry *config.Config) bool {
	_, set := entry.Annotations[health.ChecksAnnotation]
	return set
}

// stays says whether an entry outlives its machine's stream: people have withdrawn it, and that is
// to hold when the machine comes back.
func stays(entry *config.Config) bool {
	_, withdrawn := health.Withdrawn(entry.Annotations)
	return withdrawn
}

// keepingOut refuses the holder of an entry that people have removed. The entry stays, so that
// every server knows.
func (c *claim) keepingOut(o Options, entry *config.Config) action {
	s := c.holder
	s.become(node.Refused, removedText(entry))
	if entry.Annotations[NodeAnnotation] != s.proxy.ID || c.written != nil && c.written.by == s && c.written.stays {
		return action{}
	}
	object := entry.Clone()
	mark := s.mark(o.Server)
	object.Annotations[ServerAnnotation], object.Annotations[ConnectedAnnotation] = mark[0], mark[1]
	return action{verb: put, object: object, written: written{by: s, stays: true}}
}

func removedText(entry *config.Config) string {
	return fmt.Sprintf("%s is removed: %s: portolan machine remove --end lets it back", entry.Key(), entry.Annotations[health.RemovedAnnotation])
}

// putting returns the action that writes the entry for its holder, in place of the one that is
// there; nil for none. What drains that stays.
func (c *claim) putting(o Options, there *config.Config) action {
	s := c.holder
	object, refused := EntryOf(c.group, s.proxy)
	object.ResourceVersion = storage.Absent
	if there != nil {
		object.ResourceVersion = there.ResourceVersion
		if why, drained := there.Annotations[health.DrainedAnnotation]; drained {
			object.Annotations[health.DrainedAnnotation] = why
		}
	}
	if s.ill() && !heeds(object) {
		object.Annotations[health.ChecksAnnotation] = "true"
	}
	mark := s.mark(o.Server)
	object.Annotations[ServerAnnotation], object.Annotations[ConnectedAnnotation], object.Annotations[NodeAnnotation] = mark[0], mark[1], mark[2]
	if c.failure != "" {
		s.become(node.Waiting, "the store: "+c.failure)
	}
	return action{verb: put, object: object, written: written{s, c.group.ResourceVersion, unheard(refused), stays(object)}}
}

// tellStandings tells each stream what has become of it, and the one that has the entry whether people
// have drained that.
func (c *claim) tellStandings(entry *config.Config) {
	for _, s := range c.streams {
		if s.state == "" {
			continue
		}
		now := node.Standing{State: s.state, Entry: c.key.String(), Reason: s.reason}
		if s == c.holder && entry != nil {
			now.Drained = entry.Annotations[health.DrainedAnnotation]
		}
		s.stand(now)
	}
}

// removing returns the action that ends the entry of a claim that no stream may have: its machine
// has left, or the group is not for its proxy any more.
func (c *claim) removing(entry *config.Config, o Options) action {
	if entry == nil || c.written == nil || markOf(entry) != c.written.by.mark(o.Server) {
		return action{}
	}
	by := c.written.by
	switch {
	case c.left(by) && !stays(entry):
		return action{verb: remove, version: entry.ResourceVersion, why: "the machine has said that it leaves"}
	case slices.Contains(c.streams, by) && !by.departed:
		return action{verb: remove, version: entry.ResourceVersion, why: "the WorkloadGroup of the machine is gone, or is not for it any more"}
	}
	return action{} // its lease runs out
}

// depart notes that the machine of a stream has said that it leaves: the stream may not have
// the entry, nor may an older one of the machine that lingers.
func (c *claim) depart(s *stream) {
	for _, other := range c.streams {
		if other.proxy.ID == s.proxy.ID && !other.since.After(s.since) {
			other.departed = true
		}
	}
}

// left says whether a machine has said that it leaves since its stream began that wrote the entry.
func (c *claim) left(by *stream) bool {
	says := func(s *stream) bool {
		return s.departed && s.proxy.ID == by.proxy.ID && !s.since.Before(by.since)
	}
	return says(by) || c.departed != nil && says(c.departed) || slices.ContainsFunc(c.streams, says)
}

// keeping returns what is to be done for an entry that is as it should be.
func (c *claim) keeping(o Options, entry *config.Config) action {
	s := c.holder
	switch {
	case c.failure != "" && !c.written.stays && time.Since(c.renewed) > o.TTL:
		s.become(node.Waiting, "the store: "+c.failure)
	case c.written.lacked == "" && s.report == nil && c.group.Spec.(*networking.WorkloadGroup).Probe != nil && time.Since(s.since) > o.Silence:
		s.become(node.Registered, "and its agent reports no health: the agent on the machine runs spec.probe of the group, and before the first report nobody sends it requests")
	default:
		s.become(node.Registered, c.written.lacked)
	}
	if !c.written.stays && c.due(o) {
		return action{verb: renew}
	}
	if s.report == nil || time.Since(c.toldAt) < interval && !s.report.urgent(c.told.healthy) {
		return action{}
	}
	if now := (told{entry.UID, *s.report}); now != c.told {
		return action{verb: tell, told: now}
	}
	return action{}
}

// due says whether the lease is to be renewed.
func (c *claim) due(o Options) bool { return time.Since(c.renewed) >= o.TTL/renewals }

// unheard says which labels of the node its entry does not have; empty for none.
func unheard(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	return fmt.Sprintf("without the node's labels %s: name them in the annotation %s of the group, or set them in spec.metadata.labels, or leave them out of the node's metadata",
		strings.Join(labels, ", "), NodeLabelsAnnotation)
}
