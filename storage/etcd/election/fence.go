package election

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A fencedKV puts every write into a transaction that requires the fence. The caller's
// own transaction is one operation in it, so a lost fence and a failed condition of the
// caller can be told apart.
type fencedKV struct {
	clientv3.KV
	fence clientv3.Cmp
	lost  func() error // notes the loss and returns the error for it
}

// Txn implements clientv3.KV.
func (f fencedKV) Txn(ctx context.Context) clientv3.Txn { return &fencedTxn{kv: f, ctx: ctx} }

// Put implements clientv3.KV.
func (f fencedKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	answer, err := f.Do(ctx, clientv3.OpPut(key, value, opts...))
	return answer.Put(), err
}

// Delete implements clientv3.KV.
func (f fencedKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	answer, err := f.Do(ctx, clientv3.OpDelete(key, opts...))
	return answer.Del(), err
}

// Do implements clientv3.KV.
func (f fencedKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if op.IsGet() {
		return f.KV.Do(ctx, op)
	}
	answer, err := f.KV.Txn(ctx).If(f.fence).Then(op).Commit()
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	if !answer.Succeeded {
		return clientv3.OpResponse{}, f.lost()
	}
	// A response within a transaction has no header, or an empty one.
	result := answer.Responses[0]
	switch {
	case op.IsPut():
		put := result.GetResponsePut()
		put.Header = answer.Header
		return (*clientv3.PutResponse)(put).OpResponse(), nil
	case op.IsDelete():
		deletion := result.GetResponseDeleteRange()
		deletion.Header = answer.Header
		return (*clientv3.DeleteResponse)(deletion).OpResponse(), nil
	}
	txn := result.GetResponseTxn()
	txn.Header = answer.Header
	return (*clientv3.TxnResponse)(txn).OpResponse(), nil
}

// fencedTxn implements clientv3.Txn.
type fencedTxn struct {
	kv              fencedKV
	ctx             context.Context // of one call, as clientv3.Txn has it
	compares        []clientv3.Cmp
	then, otherwise []clientv3.Op
}

func (t *fencedTxn) If(compares ...clientv3.Cmp) clientv3.Txn {
	t.compares = append(t.compares, compares...)
	return t
}

func (t *fencedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

func (t *fencedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.otherwise = append(t.otherwise, ops...)
	return t
}

func (t *fencedTxn) Commit() (*clientv3.TxnResponse, error) {
	answer, err := t.kv.Do(t.ctx, clientv3.OpTxn(t.compares, t.then, t.otherwise))
	return answer.Txn(), err
}
