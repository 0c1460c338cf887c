package etcd_test

import (
	"context"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// hooked is a KV that calls before and after, if they are set, around each transaction
// with a condition. It returns their errors to the caller.
type hooked struct {
	clientv3.KV
	before, after func() error
	// commits counts the transactions with a condition, requests all requests.
	commits, requests atomic.Int64
}

func (h *hooked) Txn(ctx context.Context) clientv3.Txn {
	return &hookedTxn{Txn: h.KV.Txn(ctx), hooked: h}
}

type hookedTxn struct {
	clientv3.Txn
	hooked *hooked
	writes bool
}

func (t *hookedTxn) If(c ...clientv3.Cmp) clientv3.Txn {
	t.writes = true
	t.Txn = t.Txn.If(c...)
	return t
}

func (t *hookedTxn) Then(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(o...); return t }
func (t *hookedTxn) Else(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(o...); return t }

func (t *hookedTxn) Commit() (*clientv3.TxnResponse, error) {
	t.hooked.requests.Add(1)
	if !t.writes {
		return t.Txn.Commit()
	}
	t.hooked.commits.Add(1)
	if t.hooked.before != nil {
		if err := t.hooked.before(); err != nil {
			return nil, err
		}
	}
	response, err := t.Txn.Commit()
	if err == nil && t.hooked.after != nil {
		if err := t.hooked.after(); err != nil {
			return nil, err
		}
	}
	return response, err
}

func hook(client *clientv3.Client) *hooked {
	h := &hooked{KV: client.KV}
	client.KV = h
	return h
}

// once runs f at the first call only.
func once(f func() error) func() error {
	var done atomic.Bool
	return func() error {
		if done.Swap(true) {
			return nil
		}
		return f()
	}
}

// always is a hook that returns an error.
func always(err error) func() error { return func() error { return err } }
