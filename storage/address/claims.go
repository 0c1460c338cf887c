package address

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Label of a ServiceEntry switches addresses off for its hosts, by the value
// "false" in any case.
const Label = "networking.istio.io/enable-autoallocate-ip"

// Key names a host in a namespace.
type Key struct{ Namespace, Host string }

// String is the Path.
func (k Key) String() string { return Path(k.Namespace, k.Host) }

// Compare is the order of keys.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Host, o.Host))
}

// Eligible says whether the hosts of an object are to have addresses, those that
// are no patterns: it is a ServiceEntry without addresses whose resolution is not
// NONE, and its Label does not say otherwise.
func Eligible(object *config.Config) bool { return eligible(object) != nil }

// Hosts are those of an object that are to have addresses, in order and in lower
// case. The object may be nil, and its spec encoded, in an Any.
func Hosts(object *config.Config) []string {
	var out []string
	for _, host := range eligible(object).GetHosts() {
		if host != "" && !strings.ContainsAny(host, "*/\x00") {
			out = append(out, strings.ToLower(host))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// eligible is the spec of an object that is Eligible, else nil.
func eligible(object *config.Config) *networking.ServiceEntry {
	if object == nil || object.Spec == nil || object.Kind != schema.ServiceEntry.Kind || object.Group != schema.ServiceEntry.Group ||
		strings.EqualFold(object.Labels[Label], "false") {
		return nil
	}
	spec := specOf(object.Spec)
	if spec.GetResolution() == networking.ServiceEntry_NONE || len(spec.GetAddresses()) > 0 {
		return nil
	}
	return spec
}

// specOf returns as much of a ServiceEntry as Hosts looks at.
func specOf(spec proto.Message) *networking.ServiceEntry {
	switch spec := spec.(type) {
	case *networking.ServiceEntry:
		return spec
	case *anypb.Any:
		return peek(spec.GetValue())
	}
	return nil
}

// Fields of a ServiceEntry.
const (
	fieldHosts      = 1
	fieldAddresses  = 2
	fieldResolution = 5
)

// peek reads of an encoded ServiceEntry what Hosts looks at and passes over the
// rest, of which there may be much.
func peek(encoded []byte) *networking.ServiceEntry {
	out := &networking.ServiceEntry{}
	for len(encoded) > 0 {
		number, wire, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return out
		}
		encoded = encoded[n:]
		if n = protowire.ConsumeFieldValue(number, wire, encoded); n < 0 {
			return out
		}
		switch {
		case number == fieldHosts && wire == protowire.BytesType:
			host, _ := protowire.ConsumeString(encoded)
			out.Hosts = append(out.Hosts, host)
		case number == fieldAddresses && wire == protowire.BytesType:
			address, _ := protowire.ConsumeString(encoded)
			out.Addresses = append(out.Addresses, address)
		case number == fieldResolution && wire == protowire.VarintType:
			value, _ := protowire.ConsumeVarint(encoded)
			out.Resolution = networking.ServiceEntry_Resolution(value)
		}
		encoded = encoded[n:]
	}
	return out
}

// Claim is what becomes of who needs the address of a host: names of
// ServiceEntries of its namespace.
type Claim struct {
	Key
	Add, Drop []string
}

// Claims are those that steps make, in the order of their keys. A ServiceEntry
// whose hosts stay the same makes none.
func Claims(steps []plan.Step) []Claim {
	all := collector{}
	for _, step := range steps {
		if step.Key.Kind.Kind != schema.ServiceEntry.Kind || step.Before == step.After {
			continue
		}
		all.move(step.Key, Hosts(step.Before), Hosts(step.After))
	}
	return all.sorted()
}

// Doubt is a ServiceEntry of which it is not certain that it owns the addresses
// of its hosts, or that it owns no others: those of Hosts.
type Doubt struct {
	config.Key
	Hosts []string
}

// Settled are the claims that end doubts: they make each object, as it is stored,
// one of those that need the addresses of its own hosts, and of no other host in
// doubt. One that is not stored has no hosts; of one that cannot be read nothing is
// known, so it makes no claims.
func Settled(doubts []Doubt, stored map[config.Key]*config.Config) []Claim {
	all := collector{}
	for _, d := range doubts {
		object := stored[d.Key]
		if object != nil && object.Spec == nil {
			continue
		}
		own := Hosts(object)
		for _, host := range own {
			claim := all.of(Key{d.Namespace, host})
			claim.Add = append(claim.Add, d.Name)
		}
		for _, host := range d.Hosts {
			if !slices.Contains(own, host) {
				claim := all.of(Key{d.Namespace, host})
				claim.Drop = append(claim.Drop, d.Name)
			}
		}
	}
	return all.sorted()
}

// Doubts compares who should own the addresses with who does: every object of
// objects for its hosts, and nobody else. They come in the order of their keys.
func Doubts(objects iter.Seq[*config.Config], owners map[Key][]string) []Doubt {
	found := map[config.Key][]string{}
	should := map[Key][]string{}
	for object := range objects {
		for _, host := range Hosts(object) {
			k := Key{object.Namespace, host}
			should[k] = append(should[k], object.Name)
			if !slices.Contains(owners[k], object.Name) {
				found[object.Key()] = nil
			}
		}
	}
	for k, names := range owners {
		for _, name := range names {
			if !slices.Contains(should[k], name) {
				owner := config.Key{Kind: schema.ServiceEntry, Namespace: k.Namespace, Name: name}
				found[owner] = append(found[owner], k.Host)
			}
		}
	}
	out := make([]Doubt, 0, len(found))
	for key, hosts := range found {
		slices.Sort(hosts)
		out = append(out, Doubt{key, hosts})
	}
	slices.SortFunc(out, func(a, b Doubt) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// collector has the claims by key.
type collector map[Key]*Claim

func (c collector) of(k Key) *Claim {
	if c[k] == nil {
		c[k] = &Claim{Key: k}
	}
	return c[k]
}

// move lets an object go from hosts to others; both are in order.
func (c collector) move(key config.Key, from, to []string) {
	for _, host := range from {
		if _, stays := slices.BinarySearch(to, host); !stays {
			claim := c.of(Key{key.Namespace, host})
			claim.Drop = append(claim.Drop, key.Name)
		}
	}
	for _, host := range to {
		if _, was := slices.BinarySearch(from, host); !was {
			claim := c.of(Key{key.Namespace, host})
			claim.Add = append(claim.Add, key.Name)
		}
	}
}

func (c collector) sorted() []Claim {
	out := make([]Claim, 0, len(c))
	for _, claim := range c {
		out = append(out, *claim)
	}
	slices.SortFunc(out, func(a, b Claim) int { return a.Compare(b.Key) })
	return out
}
