package serve

import (
	"maps"
	"slices"
	"time"

	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
)

// addressHold is how long a source keeps the address of a host that no server has in that
// source. An hour is longer than a rolling restart of servers takes. It also is enough for
// people to notice that a directory was emptied, or differs on a server. A leader counts from
// when it first saw the host gone.
const addressHold = time.Hour

// A freer finds the addresses that sources other than the store own and do not need. It
// lasts for one term of a leader.
type freer struct {
	hold  time.Duration
	since map[ownedAddress]time.Time // when it first was not needed

	sources  pmap.Map[*status.Sources] // as of the last look
	contents pmap.Map[*status.Content] // likewise
}

func newFreer(hold time.Duration) *freer {
	return &freer{hold: hold, since: map[ownedAddress]time.Time{}}
}

// pending says whether a look may find something: the servers' reports have changed since the
// last one, or a hold is over.
func (f *freer) pending(facts *statuses.Reports, now time.Time) bool {
	if facts == nil {
		return false
	}
	for _, since := range f.since {
		if now.Sub(since) >= f.hold {
			return true
		}
	}
	return facts.Sources != f.sources || facts.Contents != f.contents
}

// claimsToFree returns the claims to take back: of addresses that no server has needed for the
// whole hold.
func (f *freer) claimsToFree(owners map[address.Key][]string, facts *statuses.Reports, now time.Time) []address.Claim {
	if facts == nil {
		return nil
	}
	f.sources, f.contents = facts.Sources, facts.Contents
	hosts := hostsOf(facts)
	unneeded := map[ownedAddress]bool{}
	var claims []address.Claim
	for _, key := range slices.SortedFunc(maps.Keys(owners), address.Key.Compare) {
		claim := address.Claim{Key: key}
		for _, owner := range owners[key] {
			source, other := address.SourceOf(owner)
			one := ownedAddress{key, source}
			if !other || needed(facts, hosts, one) {
				continue
			}
			unneeded[one] = true
			if f.since[one].IsZero() {
				f.since[one] = now
			}
			if now.Sub(f.since[one]) >= f.hold {
				claim.Drop = append(claim.Drop, owner)
			}
		}
		if len(claim.Drop) > 0 {
			claims = append(claims, claim)
		}
	}
	maps.DeleteFunc(f.since, func(one ownedAddress, _ time.Time) bool { return !unneeded[one] })
	return claims
}

// needed says whether a live server has a host in a source, or may have it. A server may have
// it if it has not reported its sources, or not read this source completely.
func needed(facts *statuses.Reports, hosts map[hostAt]bool, one ownedAddress) bool {
	id := status.HostID(one.Namespace, one.Host)
	for path, replica := range facts.Replicas.All() {
		sources := facts.Sources.Value(path)
		if sources == nil {
			return true
		}
		state := sources.Named(one.source)
		if state != nil && !state.Complete || hosts[hostAt{replica.ID, one.source, id}] {
			return true
		}
	}
	return facts.Replicas.Len() == 0
}

// hostAt identifies a host in a source on a server.
type hostAt struct {
	replica, source string
	id              uint64
}

func hostsOf(facts *statuses.Reports) map[hostAt]bool {
	out := map[hostAt]bool{}
	for content := range facts.Contents.Values() {
		for _, id := range content.Hosts {
			out[hostAt{content.Replica, content.Source, id}] = true
		}
	}
	return out
}
