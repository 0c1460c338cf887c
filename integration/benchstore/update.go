package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// writers is the number of concurrent writers in measurements of the rate.
const writers = 64

// plainPrefix is the prefix of the plain loops' keys. It is as long as ConfigPrefix, and no
// cache watches it.
var plainPrefix = etcd.SidePrefix + strings.Repeat("-", len(etcd.ConfigPrefix)-len(etcd.SidePrefix)-1) + "/"

// writer changes one object or key by a conditional write, each time anew.
type writer func(context.Context) error

// measureUpdates compares Store.Update with a resource version, which includes its history
// record, with the same transaction by hand, and with a bare compare-and-set of one key.
func measureUpdates(ctx context.Context, b *bench) error {
	s, err := store(b.ours)
	if err != nil {
		return err
	}
	shape, err := b.transaction(ctx)
	if err != nil {
		return err
	}
	b.note("an update puts %s", shape)
	ours, plain, bare := make([]writer, writers), make([]writer, writers), make([]writer, writers)
	for i := range writers {
		if ours[i], err = b.storeWriter(ctx, i, s); err != nil {
			return err
		}
		plain[i] = shape.writer(b.plain, fmt.Sprintf("%s%05d", shape.key[:len(shape.key)-5], i))
		bare[i] = transaction{key: shape.key, value: shape.value}.writer(b.plain, fmt.Sprintf("%s%05d-", shape.key[:len(shape.key)-5], i))
	}
	other, err := store(b.ours) // another replica
	if err != nil {
		return err
	}
	taking, err := b.storeWriter(ctx, writers, s, other)
	if err != nil {
		return err
	}
	return errors.Join(b.latency(ctx, ours[0], taking, plain[0], bare[0]), b.rate(ctx, ours, plain, bare))
}

// storeWriter returns a writer that updates the i-th ServiceEntry through the stores in turn.
// All ServiceEntries have the same size. A store need not read what it wrote itself.
func (b *bench) storeWriter(ctx context.Context, i int, stores ...*etcd.Store) (writer, error) {
	rounds := [2]*config.Config{object(2*i, 0), object(2*i, 1)}
	version, err := stores[0].Create(ctx, rounds[0])
	round := 0
	return func(ctx context.Context) error {
		round++
		next := *rounds[round%2]
		next.ResourceVersion = version
		version, err = stores[round%len(stores)].Update(ctx, &next)
		return err
	}, err
}

// transaction is what an update of one object sends to etcd.
type transaction struct {
	key         string // of the object
	value       []byte
	recordKey   string // empty for none
	recordValue []byte
	others      []clientv3.Cmp // conditions on other keys
}

// String describes the puts.
func (t transaction) String() string {
	return fmt.Sprintf("an object of %d bytes (key %d) and a record of history of %d (key %d), with %d more comparisons",
		len(t.value), len(t.key), len(t.recordValue), len(t.recordKey), len(t.others))
}

// transaction records what the store sends to etcd for an update.
func (b *bench) transaction(ctx context.Context) (transaction, error) {
	client, err := b.dial()
	if err != nil {
		return transaction{}, err
	}
	defer func() { _ = client.Close() }()
	heard := &overheard{KV: client.KV}
	client.KV = heard
	s, err := store(client)
	if err != nil {
		return transaction{}, err
	}
	write, err := b.storeWriter(ctx, writers+1, s)
	if err != nil {
		return transaction{}, err
	}
	if err := write(ctx); err != nil {
		return transaction{}, err
	}
	t := transaction{}
	for _, put := range heard.writes {
		if strings.HasPrefix(string(put.KeyBytes()), etcd.HistoryPrefix) {
			t.recordKey, t.recordValue = string(put.KeyBytes()), put.ValueBytes()
		} else {
			t.key, t.value = string(put.KeyBytes()), put.ValueBytes()
		}
	}
	for _, compare := range heard.compares {
		if key := string(compare.KeyBytes()); key != t.key && key != t.recordKey {
			t.others = append(t.others, compare)
		}
	}
	t.key = plainPrefix + strings.TrimPrefix(t.key, etcd.ConfigPrefix)
	return t, nil
}

// writer returns a writer that sends the same transaction by hand, for a key of its own.
func (t transaction) writer(client *clientv3.Client, key string) writer {
	revision := int64(0)
	return func(ctx context.Context) error {
		compares := append([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)}, t.others...)
		puts, gets := []clientv3.Op{clientv3.OpPut(key, string(t.value))}, []clientv3.Op{clientv3.OpGet(key)}
		if t.recordKey != "" {
			record := plainPrefix + "history/" + uuid.NewString()
			compares = append(compares, clientv3.Compare(clientv3.CreateRevision(record), "=", 0))
			puts = append(puts, clientv3.OpPut(record, string(t.recordValue)))
			gets = append(gets, clientv3.OpGet(record))
		}
		answer, err := client.Txn(ctx).If(compares...).Then(puts...).Else(gets...).Commit()
		if err == nil && !answer.Succeeded {
			err = fmt.Errorf("%s is not at revision %d", key, revision)
		}
		if err == nil {
			revision = answer.Header.Revision
		}
		return err
	}
}

// latency measures updates with one writer.
func (b *bench) latency(ctx context.Context, ours, taking, plain, bare writer) error {
	var plainAll, oursAll, bareAll, takingAll, besideTaking durations
	sideOf := func(all *durations, w writer) side {
		return all.slice(b.slice, timed(func() error { return w(ctx) }))
	}
	same, err := compare(b.pairs, sideOf(&plainAll, plain), sideOf(&oursAll, ours))
	if err != nil {
		return err
	}
	single, err := compare(b.pairs/2, sideOf(&bareAll, bare), sideOf(&oursAll, ours))
	if err != nil {
		return err
	}
	read, err := compare(b.pairs/2, sideOf(&besideTaking, plain), sideOf(&takingAll, taking))
	if err != nil {
		return err
	}
	b.add(line{"one update, one writer: p50", plainAll.both(same.plain), oursAll.both(same.portolan), same.ratio, limit{ratio: 1.5}})
	b.add(line{what: "  beside a compare-and-set of one key", plain: bareAll.both(single.plain), ratio: single.ratio})
	b.add(line{what: "  of what another replica wrote last", plain: besideTaking.both(read.plain), portolan: takingAll.both(read.portolan), ratio: read.ratio})
	return nil
}

// rate measures updates with many writers, each with a key of its own.
func (b *bench) rate(ctx context.Context, ours, plain, bare []writer) error {
	sideOf := func(all []writer) side {
		return func() (float64, error) { return runWriters(ctx, all, 2*b.slice) }
	}
	same, err := compare(b.pairs, sideOf(plain), sideOf(ours))
	if err != nil {
		return err
	}
	single, err := compare(b.pairs/2, sideOf(bare), sideOf(ours))
	if err != nil {
		return err
	}
	perSecond := func(rate float64) string { return fmt.Sprintf("%.0f/s", rate) }
	b.add(line{fmt.Sprintf("updates, %d writers: rate", writers), perSecond(same.plain), perSecond(same.portolan), same.ratio, limit{0.7, true}})
	b.add(line{what: "  beside a compare-and-set of one key", plain: perSecond(single.plain), ratio: single.ratio})
	return nil
}

// runWriters runs all writers for a time, and returns the writes per second.
func runWriters(ctx context.Context, all []writer, length time.Duration) (float64, error) {
	var group errgroup.Group
	counts := make([]int, len(all))
	begin := time.Now()
	for i, w := range all {
		group.Go(func() error {
			for time.Since(begin) < length {
				if err := w(ctx); err != nil {
					return err
				}
				counts[i]++
			}
			return nil
		})
	}
	err := group.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return float64(sum) / time.Since(begin).Seconds(), err
}

// overheard is a KV that remembers the last transaction with a condition.
type overheard struct {
	clientv3.KV
	mu       sync.Mutex // guards the fields below
	compares []clientv3.Cmp
	writes   []clientv3.Op
}

// Txn implements clientv3.KV.
func (o *overheard) Txn(ctx context.Context) clientv3.Txn {
	return &overheardTxn{Txn: o.KV.Txn(ctx), to: o}
}

type overheardTxn struct {
	clientv3.Txn
	to       *overheard
	compares []clientv3.Cmp
}

func (t *overheardTxn) If(compares ...clientv3.Cmp) clientv3.Txn {
	t.compares, t.Txn = compares, t.Txn.If(compares...)
	return t
}

func (t *overheardTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	if len(t.compares) > 0 {
		t.to.mu.Lock()
		t.to.compares, t.to.writes = t.compares, ops
		t.to.mu.Unlock()
	}
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *overheardTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(ops...)
	return t
}
