package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/cache/mirror"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// visible compares the time from a put until the cache's snapshot has it with the time until a
// plain watch has it. Both use the same plain puts, one after the other.
func (b *bench) visible(ctx context.Context) error {
	toCache, stopCache, err := b.putToCache(ctx)
	if err != nil {
		return err
	}
	toWatch, stopWatch, err := b.putToWatch(ctx)
	if err != nil {
		return errors.Join(err, stopCache())
	}
	var plain, ours durations
	result, err := compare(b.pairs, plain.slice(b.slice, toWatch), ours.slice(b.slice, toCache))
	if err = errors.Join(err, stopCache(), stopWatch()); err != nil {
		return err
	}
	b.add(line{"put to cache-visible, beside put to watch: p50", plain.both(result.plain), ours.both(result.portolan), result.ratio, limit{ratio: 2}})
	return nil
}

// change does one put of the first object, and returns the time until it arrived.
type change func() (time.Duration, error)

// putter returns a change that puts a value under a key, and waits until arrived reports one.
func (b *bench) putter(ctx context.Context, key string, arrived <-chan time.Time) (change, error) {
	var values [2]string
	for round := range values {
		value, err := etcd.Encode(object(0, round), make([]byte, 16))
		if err != nil {
			return nil, err
		}
		values[round] = string(value)
	}
	round := 0
	return func() (time.Duration, error) {
		round++
		begin := time.Now()
		if _, err := b.plain.Put(ctx, key, values[round%2]); err != nil {
			return 0, err
		}
		select {
		case at := <-arrived:
			return at.Sub(begin), nil
		case <-time.After(10 * time.Second):
			return 0, fmt.Errorf("%s: a put did not arrive", key)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}, nil
}

// putToCache returns a change that has arrived when the snapshot of a cache has it.
func (b *bench) putToCache(ctx context.Context) (change, func() error, error) {
	c, stopCache, err := b.cache(ctx)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	arrived := make(chan time.Time, 1)
	key := object(0, 0).Key()
	var following errgroup.Group
	following.Go(func() error { return follow(ctx, c, key, arrived) })
	stop := func() error { cancel(); return errors.Join(following.Wait(), stopCache()) }
	put, err := b.putter(ctx, etcd.ConfigKey(key), arrived)
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return put, stop, nil
}

// follow sends the time of every snapshot in which an object has changed, until ctx ends.
func follow(ctx context.Context, c *mirror.Cache, key config.Key, arrived chan<- time.Time) error {
	for at := c.Snapshot(); ; {
		next, err := c.Next(ctx, at)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if next.Get(key) != at.Get(key) {
			arrived <- time.Now()
		}
		at = next
	}
}

// putToWatch returns a change that has arrived when a plain watch reports it.
func (b *bench) putToWatch(ctx context.Context) (change, func() error, error) {
	ctx, cancel := context.WithCancel(ctx)
	arrived := make(chan time.Time, 1)
	answers := b.plain.Watch(ctx, plainPrefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	first := <-answers
	var watching errgroup.Group
	watching.Go(func() error {
		for answer := range answers {
			for range answer.Events {
				arrived <- time.Now()
			}
		}
		return nil
	})
	stop := func() error { cancel(); return watching.Wait() }
	put, err := b.putter(ctx, plainPrefix+object(0, 0).Key().Path(), arrived)
	if err = errors.Join(err, first.Err()); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return put, stop, nil
}
