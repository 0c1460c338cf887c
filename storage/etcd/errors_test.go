package etcd_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func TestARefusedMutationIsNotOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ answer, class error }{
		"quota used up":     {rpctypes.ErrNoSpace, storage.ErrUnavailable},
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
