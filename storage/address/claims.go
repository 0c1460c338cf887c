package address

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Key names a host in a namespace.
type Key struct{ Namespace, Host string }

// String is the Path.
func (k Key) String() string { return Path(k.Namespace, k.Host) }

// Compare is the order of keys.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Host, o.Host))
}

// Eligible says whether the hosts of an object, except wildcards, get addresses: the object
// is a ServiceEntry for which schema.Allocates is true.
func Eligible(object *config.Config) bool { return eligible(object) != nil }

// Hosts returns the hosts of an object that need addresses, in order and in lower case. The
// object may be nil, and its spec may be an encoded Any.
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

// eligible returns the spec of an object that is Eligible, else nil.
func eligible(object *config.Config) *networking.ServiceEntry {
	if object == nil || object.Spec == nil || object.Kind != schema.ServiceEntry.Kind || object.Group != schema.ServiceEntry.Group {
		return nil
	}
	spec := specOf(object.Spec)
	if !schema.Allocates(object.Labels, spec) {
		return nil
	}
	return spec
}

// specOf returns a ServiceEntry with at least the fields that Hosts reads.
func specOf(spec any) *networking.ServiceEntry {
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

// peek decodes the fields that Hosts needs from an encoded ServiceEntry, and skips the
// rest, which may be large.
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

// Claim is a change of the owners of a host's address: the ServiceEntries of its
// namespace, by name, that need it.
type Claim struct {
	Key
	Add, Drop []string
}

// Claims returns the claims of steps, in the order of their keys. A ServiceEntry whose
// hosts stay the same makes none.
func Claims(steps []plan.Step) []Claim {
	all := collector{}
	for _, step := range steps {
		if step.Key.Kind.Kind != schema.ServiceEntry.Kind || step.Before == step.After {
			continue
		}
		all.addChange(step.Key, Hosts(step.Before), Hosts(step.After))
	}
	return all.sorted()
}

// Doubt is a ServiceEntry whose addresses may be wrong: it may lack those of hosts of its
// spec, or own those of Hosts without need.
type Doubt struct {
	config.Key
	Hosts []string
}

// ClaimsFor returns the claims that end doubts. They make each stored object an owner of the
// addresses of its own hosts, and remove it as owner from other hosts of its Doubt. An
// object that is not stored has no hosts. An object that cannot be read makes no claims,
// since nothing is known of it.
func ClaimsFor(doubts []Doubt, stored map[config.Key]*config.Config) []Claim {
	all := collector{}
	for _, d := range doubts {
		object := stored[d.Key]
		if object != nil && object.Spec == nil {
			continue
		}
		own := Hosts(object)
		for _, host := range own {
			claim := all.claim(Key{d.Namespace, host})
			claim.Add = append(claim.Add, d.Name)
		}
		for _, host := range d.Hosts {
			if _, stays := slices.BinarySearch(own, host); !stays {
				claim := all.claim(Key{d.Namespace, host})
				claim.Drop = append(claim.Drop, d.Name)
			}
		}
	}
	return all.sorted()
}

// Doubts compares the owners of addresses, which are sorted, with what they should be:
// every object owns the addresses of its hosts, and nobody else does. The result is in the
// order of keys.
func Doubts(objects iter.Seq[*config.Config], owners map[Key][]string) []Doubt {
	found := map[config.Key][]string{}
	should := map[Key][]string{}
	for object := range objects {
		for _, host := range Hosts(object) {
			k := Key{object.Namespace, host}
			should[k] = append(should[k], object.Name)
			if _, owns := slices.BinarySearch(owners[k], object.Name); !owns {
				found[object.Key()] = nil
			}
		}
	}
	for k, names := range owners {
		slices.Sort(should[k])
		for _, name := range names {
			if _, other := SourceOf(name); other {
				continue // the store does not know the objects of other sources
			}
			if _, needs := slices.BinarySearch(should[k], name); !needs {
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

type collector map[Key]*Claim

func (c collector) claim(k Key) *Claim {
	if c[k] == nil {
		c[k] = &Claim{Key: k}
	}
	return c[k]
}

// addChange adds the claims of an object whose hosts change; from and to are sorted.
func (c collector) addChange(key config.Key, from, to []string) {
	for _, host := range from {
		if _, stays := slices.BinarySearch(to, host); !stays {
			claim := c.claim(Key{key.Namespace, host})
			claim.Drop = append(claim.Drop, key.Name)
		}
	}
	for _, host := range to {
		if _, was := slices.BinarySearch(from, host); !was {
			claim := c.claim(Key{key.Namespace, host})
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
