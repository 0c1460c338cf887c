package etcd

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/plan"
)

// Package address decides the addresses of hosts. The key of a host, under
// AddressPrefix, holds its addresses and owners. The key of an IPv4 address, under
// SlotPrefix, exists from its first use on. Every transaction that changes one of the
// two compares both, so no address has two hosts and no host gets two, whoever writes
// at the same time.

func slotKey(ipv4 netip.Addr) string { return SlotPrefix + ipv4.String() }

// allotment is the part of a transaction that changes addresses.
type allotment struct {
	// keys are the keys that must be as found, in order.
	keys    []string
	writes  []keyWrite
	written map[string]bool
	// without are the hosts that get no address, because none is free.
	without []address.Key
}

// keyWrite is a value of a key; nil removes it.
type keyWrite struct {
	key   string
	value []byte
}

func (s *Store) claims(steps []plan.Step) []address.Claim {
	if !s.o.Addresses.Enabled() {
		return nil
	}
	return address.Claims(steps)
}

// assume guesses the state of a claimed host of which nothing is known: it has no
// address, and its first choice was never used. The guess saves a read; the transaction
// finds out whether it is right.
func (s *Store) assume(claims []address.Claim, found *targets) {
	for _, claim := range claims {
		key := AddressKey(claim.Namespace, claim.Host)
		if _, known := found.addresses[key]; !known && len(claim.Drop) == 0 {
			found.markAbsent([]string{key, slotKey(s.o.Addresses.Probe(claim.Key, 0))})
		}
	}
}

// allot reads the keys that the decision depends on, and adds them to found.
func (s *Store) allot(ctx context.Context, claims []address.Claim, found *targets, now time.Time) (allotment, error) {
	view := &addressView{found: found}
	for len(claims) > 0 {
		decision, err := s.o.Addresses.Decide(ctx, claims, view, now)
		if err != nil {
			return allotment{}, fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
		}
		if decision.Complete() {
			return newAllotment(decision, found)
		}
		if err := s.readAddresses(ctx, decision, view); err != nil {
			return allotment{}, s.readError(err)
		}
	}
	return allotment{}, nil
}

// readAddresses reads the keys that a decision depends on.
func (s *Store) readAddresses(ctx context.Context, d *address.Decision, view *addressView) error {
	if d.AllSlots {
		_, err := s.walk(ctx, Range{Prefix: SlotPrefix}, func(kv *mvccpb.KeyValue) {
			view.found.addresses[string(kv.Key)] = kv
		})
		view.all = err == nil
		return err
	}
	var keys []string
	for _, host := range d.Unknown.Hosts {
		keys = append(keys, AddressKey(host.Namespace, host.Host))
	}
	for _, ipv4 := range d.Unknown.Slots {
		keys = append(keys, slotKey(ipv4))
	}
	slices.Sort(keys)
	for part := range slices.Chunk(slices.Compact(keys), s.o.MaxTxnOps) {
		answer, err := s.client.Txn(ctx).Then(getAll(part)...).Commit()
		if err != nil {
			return err
		}
		view.found.markAbsent(part)
		for _, r := range answer.Responses {
			for _, kv := range r.GetResponseRange().GetKvs() {
				view.found.addresses[string(kv.Key)] = kv
			}
		}
	}
	return nil
}

func getAll(keys []string) []clientv3.Op {
	ops := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		ops[i] = clientv3.OpGet(key)
	}
	return ops
}

// markAbsent notes as absent the keys whose state is not known.
func (t *targets) markAbsent(keys []string) {
	for _, key := range keys {
		if _, known := t.addresses[key]; !known {
			t.addresses[key] = nil
		}
	}
}

// addressView shows the known addresses to package address.
type addressView struct {
	found *targets
	all   bool // all slots were read
}

// Holding implements address.Reader. A value that cannot be decoded counts as absent,
// and is replaced.
func (v *addressView) Holding(k address.Key) (h *address.Holding, known bool) {
	kv, known := v.found.addresses[AddressKey(k.Namespace, k.Host)]
	if kv == nil {
		return nil, known
	}
	return holdingOf(kv), true
}

func holdingOf(kv *mvccpb.KeyValue) *address.Holding {
	value, err := openAddress(kv)
	if err != nil {
		return nil
	}
	assignment, err := DecodeAddress(kv)
	if err != nil {
		return nil
	}
	return &address.Holding{IPv4: assignment.IPv4, IPv6: assignment.IPv6, Owners: ownersOf(value)}
}

// Slot implements address.Reader. A value that cannot be decoded counts as free since
// the beginning of time, without an owner that could come back.
func (v *addressView) Slot(ipv4 netip.Addr) (s *address.Slot, known bool) {
	kv, known := v.found.addresses[slotKey(ipv4)]
	if kv == nil {
		return nil, known || v.all
	}
	return slotOf(kv), true
}

func slotOf(kv *mvccpb.KeyValue) *address.Slot {
	value := &envelope.Slot{}
	if err := open(kv, value); err != nil {
		return &address.Slot{Freed: time.UnixMilli(0)}
	}
	out := &address.Slot{Key: address.Key{Namespace: value.Namespace, Host: value.Host}}
	if value.Freed != 0 {
		out.Freed = time.UnixMilli(value.Freed).UTC()
	}
	return out
}

// Slots implements address.Reader.
func (v *addressView) Slots() (all iter.Seq2[netip.Addr, *address.Slot], known bool) {
	return func(yield func(netip.Addr, *address.Slot) bool) {
		for key, kv := range v.found.addresses {
			text, ok := strings.CutPrefix(key, SlotPrefix)
			ipv4, err := netip.ParseAddr(text)
			if ok && err == nil && kv != nil && !yield(ipv4, slotOf(kv)) {
				return
			}
		}
	}, v.all
}

// newAllotment encodes a decision.
func newAllotment(d *address.Decision, found *targets) (allotment, error) {
	out := allotment{without: d.Without}
	for _, change := range d.Changes {
		key := AddressKey(change.Namespace, change.Host)
		var value []byte
		var err error
		if change.Holding != nil {
			if value, err = encodeHolding(change.Key, change.Holding, found.addresses[key]); err != nil {
				return allotment{}, err
			}
		}
		out.add(key, value)
		if change.Slot == nil {
			continue
		}
		if value, err = encodeSlot(change.Slot, found.addresses[slotKey(change.IPv4)]); err != nil {
			return allotment{}, err
		}
		out.add(slotKey(change.IPv4), value)
	}
	found.markAbsent(out.keys) // slots that the list of all slots did not have
	return out, nil
}

// add adds a write, unless the transaction writes its key already: etcd refuses two writes
// of a key. Only reads at different revisions cause two, and then the compares fail.
func (a *allotment) add(key string, value []byte) {
	if a.written[key] {
		return
	}
	if a.written == nil {
		a.written = map[string]bool{}
	}
	a.written[key] = true
	a.keys = append(a.keys, key)
	a.writes = append(a.writes, keyWrite{key, value})
}

// encodeHolding keeps the unknown fields of the value before.
func encodeHolding(k address.Key, h *address.Holding, before *mvccpb.KeyValue) ([]byte, error) {
	value := &envelope.Address{}
	if before != nil {
		if known, err := openAddress(before); err == nil {
			value = known
		}
	}
	value.Namespace, value.Host = k.Namespace, k.Host
	value.Ipv4, value.Ipv6, value.Owners, value.Sources = h.IPv4.String(), h.IPv6.String(), nil, nil
	for _, owner := range h.Owners {
		if source, other := address.SourceOf(owner); other {
			value.Sources = append(value.Sources, source)
		} else {
			value.Owners = append(value.Owners, owner)
		}
	}
	return envelope.Encode(value)
}

// encodeSlot keeps the unknown fields of the value before.
func encodeSlot(s *address.Slot, before *mvccpb.KeyValue) ([]byte, error) {
	value := &envelope.Slot{}
	if before != nil && open(before, value) != nil {
		value = &envelope.Slot{}
	}
	value.Namespace, value.Host, value.Freed = s.Namespace, s.Host, 0
	if !s.Freed.IsZero() {
		value.Freed = s.Freed.UnixMilli()
	}
	return envelope.Encode(value)
}

// tellWithout logs the hosts that got no address in a transaction that landed.
func (s *Store) tellWithout(ctx context.Context, a allotment) {
	if len(a.without) > 0 {
		s.o.Log.WarnContext(ctx, "hosts of ServiceEntries get no address, since none is left: enlarge the range",
			"hosts", len(a.without), "first", a.without[0].String(), "range", s.o.Addresses.IPv4.String())
	}
}
