package etcd_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// hooked is a KV whose transactions with a condition run before and after, if
// they are set, around the real one; the errors of both go to the caller.
type hooked struct {
	clientv3.KV
	before, after func() error
	commits       atomic.Int64
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

// TestAnAnswerThatIsLostIsOutcomeUnknown: every one of these errors can come
// from a mutation that has landed, as it does here. It is not sent again.
func TestAnAnswerThatIsLostIsOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]error{
		"deadline":         context.DeadlineExceeded,
		"canceled":         context.Canceled,
		"timed out":        rpctypes.ErrTimeout,
		"leader failed":    rpctypes.ErrTimeoutDueToLeaderFail,
		"leader changed":   rpctypes.ErrLeaderChanged,
		"server stopped":   rpctypes.ErrStopped,
		"connection lost":  status.Error(codes.Unavailable, "error reading from server: EOF"),
		"unknown to us":    errors.New("something else"),
		"internal":         status.Error(codes.Internal, "stream terminated"),
		"canceled by gRPC": status.Error(codes.Canceled, "grpc: the client connection is closing"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := etcdtest.Start(t)
			kv := hook(client)
			store := open(t, client)
			kv.after = func() error { return lost }
			_, err := store.Create(t.Context(), entry("a", "1.example"))
			if !isErr(err, storage.ErrOutcomeUnknown) || !isErr(err, lost) || !strings.Contains(err.Error(), "serviceentry/shop/a") {
				t.Errorf("create: %v, want ErrOutcomeUnknown of %v that names the object", err, lost)
			}
			if _, err := store.Update(t.Context(), entry("a", "2.example")); !isErr(err, storage.ErrOutcomeUnknown) {
				t.Errorf("update: %v, want ErrOutcomeUnknown", err)
			}
			if _, err := store.Delete(t.Context(), schema.ServiceEntry, "a", "shop", ""); !isErr(err, storage.ErrOutcomeUnknown) {
				t.Errorf("delete: %v, want ErrOutcomeUnknown", err)
			}
			if n := kv.commits.Load(); n != 3 {
				t.Errorf("%d transactions for 3 mutations", n)
			}
			wantEmpty(t, store)
		})
	}
}

func TestARefusedMutationIsNotOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ answer, class error }{
		"quota used up":     {rpctypes.ErrNoSpace, storage.ErrReadOnly},
		"permission denied": {rpctypes.ErrPermissionDenied, storage.ErrReadOnly},
		"token invalid":     {rpctypes.ErrInvalidAuthToken, storage.ErrUnavailable},
		"too many requests": {rpctypes.ErrTooManyRequests, storage.ErrUnavailable},
		"no leader":         {rpctypes.ErrNoLeader, storage.ErrUnavailable},
		"no connection":     {status.Error(codes.Unavailable, "there is no connection available"), storage.ErrUnavailable},
		"no server": {
			status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial unix /x: connect: no such file"`),
			storage.ErrUnavailable,
		},
		"too many operations": {rpctypes.ErrTooManyOps, storage.ErrTooLarge},
		"request too large":   {rpctypes.ErrRequestTooLarge, storage.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := etcdtest.Start(t)
			hook(client).before = func() error { return tt.answer }
			_, err := open(t, client).Create(t.Context(), entry("a", "1.example"))
			if !isErr(err, tt.class) || !isErr(err, tt.answer) || isErr(err, storage.ErrOutcomeUnknown) {
				t.Errorf("create: %v, want %v of %v", err, tt.class, tt.answer)
			}
		})
	}
}

func TestWithoutAServerEverythingIsUnavailable(t *testing.T) {
	t.Parallel()
	client := etcdtest.Dial(t, "unix://"+t.TempDir()+"/nobody")
	store := open(t, client, func(o *etcd.Options) { o.RequestTimeout = 200 * time.Millisecond })
	_, getErr := store.Get(t.Context(), schema.ServiceEntry, "a", "shop")
	_, listErr := store.List(t.Context(), schema.ServiceEntry, "")
	_, createErr := store.Create(t.Context(), entry("a", "1.example"))
	_, updateErr := store.Update(t.Context(), entry("a", "1.example"))
	_, deleteErr := store.Delete(t.Context(), schema.ServiceEntry, "a", "shop", "")
	for name, err := range map[string]error{
		"get": getErr, "list": listErr, "create": createErr, "update": updateErr, "delete": deleteErr,
	} {
		if !isErr(err, storage.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
	}
}

func TestACanceledContextSendsNothing(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	kv := hook(client)
	store := open(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Create(ctx, entry("a", "1.example")); !isErr(err, storage.ErrUnavailable) || !isErr(err, context.Canceled) {
		t.Errorf("create: %v, want ErrUnavailable of context.Canceled", err)
	}
	if n := kv.commits.Load(); n != 0 {
		t.Errorf("%d transactions were sent", n)
	}
}

// rival changes the labels of the object before every transaction.
func rival(t *testing.T, store *etcd.Store) func() error {
	n := 0
	return func() error {
		n++
		c := entry("a", "rival.example")
		c.Labels["n"] = strings.Repeat("x", n)
		_, err := store.Update(t.Context(), c)
		return err
	}
}

func TestALostRaceIsAConflictWhereTheMutationIsConditional(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	other := open(t, etcdtest.Dial(t, endpoint))
	client := etcdtest.Dial(t, endpoint)
	kv := hook(client)
	store := open(t, client)
	object := entry("a", "1.example")
	object.ResourceVersion = create(t, other, object)
	kv.before = rival(t, other)
	object = object.Clone()
	object.Labels["n"] = "mine"
	_, err := store.Update(t.Context(), object)
	conflict := (*storage.ConflictError)(nil)
	if !errors.As(err, &conflict) || conflict.Expected != object.ResourceVersion || conflict.Actual == object.ResourceVersion {
		t.Errorf("update: %v, want a conflict of %s", err, object.ResourceVersion)
	}
	if n := kv.commits.Load(); n != 1 {
		t.Errorf("%d transactions were sent", n)
	}
}

func TestAnUnconditionalUpdateOutlivesLostRaces(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	other := open(t, etcdtest.Dial(t, endpoint))
	client := etcdtest.Dial(t, endpoint)
	kv := hook(client)
	store := open(t, client)
	create(t, other, entry("a", "1.example"))
	interfere := rival(t, other)
	kv.before = func() error {
		if kv.commits.Load() > 3 {
			return nil
		}
		return interfere()
	}
	if _, err := store.Update(t.Context(), entry("a", "mine.example")); err != nil {
		t.Fatal(err)
	}
	got, err := store.Get(t.Context(), schema.ServiceEntry, "a", "shop")
	if err != nil || got.Generation != 3 {
		t.Errorf("generation %d, %v, want 3: mine on top of the rival's", got.Generation, err)
	}
	if n := kv.commits.Load(); n != 4 {
		t.Errorf("%d transactions were sent", n)
	}
}

func TestAnEndlessRaceEndsAtTheDeadlineWithNothingWritten(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Listen(t)
	other := open(t, etcdtest.Dial(t, endpoint))
	client := etcdtest.Dial(t, endpoint)
	kv := hook(client)
	store := open(t, client)
	create(t, other, entry("a", "1.example"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	interfere := rival(t, other)
	kv.after = func() error {
		if kv.commits.Load() == 5 {
			cancel()
		}
		return nil
	}
	kv.before = interfere
	if _, err := store.Update(ctx, entry("a", "mine.example")); !isErr(err, storage.ErrUnavailable) {
		t.Errorf("update: %v, want ErrUnavailable", err)
	}
	got, err := store.Get(t.Context(), schema.ServiceEntry, "a", "shop")
	if err != nil || got.Labels["n"] == "" {
		t.Errorf("labels %v, %v", got.Labels, err)
	}
}
