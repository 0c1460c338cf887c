package reliability_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/integration/reliability"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	writers = 6
	// callTime is how long a client waits for an answer: longer than the server tries.
	callTime = 11 * time.Second
)

// writer is an API client that writes and reads, through one replica after the other.
type writer struct {
	r      *rig
	number int
	random *rand.Rand
	apis   map[*server]*client.Client
	// known are the versions that it last saw, for conditional writes.
	known map[reliability.Key]int64
	// newest is the greatest revision that it wrote.
	newest int64
}

func (r *rig) newWriter(number int) *writer {
	w := &writer{
		r: r, number: number, random: randomOf(r.seed, uint64(number)+2),
		known: map[reliability.Key]int64{},
	}
	w.apis = r.newAPIs()
	return w
}

// newAPIs returns clients of all servers with connections of their own.
func (r *rig) newAPIs() map[*server]*client.Client {
	out := map[*server]*client.Client{}
	for _, s := range r.servers {
		out[s] = newAPI(r, s)
	}
	return out
}

// newAPI returns a client of a server with connections of its own.
func newAPI(r *rig, s *server) *client.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	r.t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(s.url(), call.Options{HTTP: &http.Client{Transport: transport}})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// run writes and reads until ctx ends.
func (w *writer) run(ctx context.Context) {
	singles, groups := reliability.Singles(), reliability.Groups()
	for ctx.Err() == nil {
		s := w.r.servers[w.random.IntN(len(w.r.servers))]
		key := singles[w.random.IntN(len(singles))]
		var class reliability.Class
		switch n := w.random.IntN(100); {
		case n < 40:
			class = w.change(ctx, s, key)
		case n < 58:
			class = w.changeGroup(ctx, s, groups[w.random.IntN(len(groups))])
		case n < 80:
			class = w.get(ctx, s, key)
		case n < 95:
			class = w.list(ctx, s)
		default:
			class = w.repeat(ctx, s, key)
		}
		if class == reliability.Unavailable {
			pass(ctx, 50*time.Millisecond)
		}
		pass(ctx, time.Duration(w.random.IntN(25))*time.Millisecond)
	}
}

// change writes one object with a random verb.
func (w *writer) change(ctx context.Context, s *server, key reliability.Key) reliability.Class {
	one := reliability.Write{Key: key, Value: w.r.values.Add(1)}
	switch n := w.random.IntN(10); {
	case n < 2:
		one.Verb = reliability.Create
	case n < 4:
		one.Verb = reliability.Put
	case n < 5:
		one.Verb = reliability.Update
	case n < 8:
		one.Verb, one.Given = reliability.Update, w.known[key]
	case n < 9:
		one.Verb, one.Given, one.Value = reliability.Delete, w.known[key], 0
	default:
		one.Verb, one.Value = reliability.Delete, 0
	}
	return w.write(ctx, s, reliability.Call{Writes: []reliability.Write{one}})
}

// changeGroup writes the objects of a group with one value, sometimes only if none has changed.
func (w *writer) changeGroup(ctx context.Context, s *server, keys []reliability.Key) reliability.Class {
	var c reliability.Call
	value, compares := w.r.values.Add(1), w.random.IntN(3) == 0
	for _, key := range keys {
		one := reliability.Write{Key: key, Verb: reliability.Put, Value: value}
		if compares {
			one.Verb, one.Given = reliability.Update, w.known[key]
		}
		c.Writes = append(c.Writes, one)
	}
	return w.write(ctx, s, c)
}

// repeat reads an object and writes it unchanged, which must change nothing.
func (w *writer) repeat(ctx context.Context, s *server, key reliability.Key) reliability.Class {
	found, class := w.read(ctx, s, reliability.Call{Key: key, Consistent: true})
	if class != reliability.OK {
		return class
	}
	return w.write(ctx, s, reliability.Call{Same: true, Writes: []reliability.Write{
		{Key: key, Verb: reliability.Update, Given: found.Revision, Value: found.Value},
	}})
}

// write makes a call with writes and records it.
func (w *writer) write(ctx context.Context, s *server, c reliability.Call) reliability.Class {
	var operations []batch.Operation
	for _, one := range c.Writes {
		operation, err := operationOf(one)
		if err != nil {
			w.r.fail("%w", err)
			return reliability.Refused
		}
		operations = append(operations, operation)
	}
	c.Client, c.Replica, c.Start = w.number, s.name, w.r.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	result, err := w.apis[s].Apply(ctx, batch.New(operations...))
	c.End, c.Class = w.r.now(), classify(err)
	if err != nil {
		c.Error = err.Error()
	} else {
		c.Revision, _ = strconv.ParseInt(result.Revision, 10, 64)
		for i, outcome := range result.Results {
			c.Writes[i].Unchanged = outcome.Outcome == string(storage.Unchanged)
			w.known[c.Writes[i].Key] = c.Revision
		}
		w.newest = max(w.newest, c.Revision)
	}
	w.r.record(func(h *reliability.History) { h.Calls = append(h.Calls, c) })
	return c.Class
}

// operationOf returns a write as an operation of the API.
func operationOf(w reliability.Write) (batch.Operation, error) {
	version := ""
	if w.Given != 0 {
		version = strconv.FormatInt(w.Given, 10)
	}
	if w.Verb == reliability.Delete {
		return batch.Remove(w.Key.Config(), version), nil
	}
	object := reliability.Object(w.Key, w.Value)
	object.ResourceVersion = version
	verb := map[reliability.Verb]batch.Verb{
		reliability.Create: batch.Create, reliability.Update: batch.Update, reliability.Put: batch.Apply,
	}[w.Verb]
	return batch.Write(verb, object)
}

// get reads an object: the current one, or at least at a revision that this writer wrote.
func (w *writer) get(ctx context.Context, s *server, key reliability.Key) reliability.Class {
	c := reliability.Call{Key: key}
	if w.random.IntN(2) == 0 {
		c.Consistent = true
	} else {
		c.Least = w.newest
	}
	_, class := w.read(ctx, s, c)
	return class
}

func (w *writer) read(ctx context.Context, s *server, c reliability.Call) (reliability.Version, reliability.Class) {
	c.Client, c.Replica, c.Start = w.number, s.name, w.r.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	key := c.Key.Config()
	api := w.apis[s].Fresh(client.Freshness{MinRevision: c.Least, Consistent: c.Consistent})
	object, err := api.Get(ctx, client.Resource(schema.Pilot().Kind(key.Kind)), key.Namespace, key.Name)
	c.End, c.Class = w.r.now(), classify(err)
	if err != nil {
		c.Error = err.Error()
	} else {
		c.Found = versionOf(object)
		c.Revision = c.Found.Revision
		w.known[c.Key] = c.Revision
	}
	w.r.record(func(h *reliability.History) { h.Calls = append(h.Calls, c) })
	return c.Found, c.Class
}

// list reads one kind: from the replica's cache, consistent with the store, or at least at a
// revision that this writer wrote.
func (w *writer) list(ctx context.Context, s *server) reliability.Class {
	scopes := reliability.Scopes()
	var fresh client.Freshness
	switch w.random.IntN(4) {
	case 0:
		fresh.Consistent = true
	case 1:
		fresh.MinRevision = w.newest
	}
	_, class := w.r.list(ctx, w.apis[s], s, w.number, scopes[w.random.IntN(len(scopes)-1)], fresh)
	return class
}

// list reads the objects of a scope and records the list.
func (r *rig) list(ctx context.Context, api *client.Client, s *server, number int, scope string, fresh client.Freshness) (reliability.List, reliability.Class) {
	before := s.id()
	l := reliability.List{Replica: before, Client: number, Start: r.now(), Scope: scope, Least: fresh.MinRevision, Objects: map[reliability.Key]reliability.Version{}}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	key := reliability.Key(scope + "/any").Config()
	items, err := api.Fresh(fresh).List(ctx, client.Resource(schema.Pilot().Kind(key.Kind)), key.Namespace, client.Selection{})
	l.End = r.now()
	if err != nil {
		return l, classify(err)
	}
	l.Revision, _ = strconv.ParseInt(items.GetResourceVersion(), 10, 64)
	for i := range items.Items {
		item := &items.Items[i]
		l.Objects[reliability.Key(scope+"/"+item.GetName())] = versionOf(item)
	}
	if s.id() == before { // otherwise the process that answered is unknown
		r.record(func(h *reliability.History) { h.Lists = append(h.Lists, l) })
	}
	return l, reliability.OK
}

func versionOf(object *unstructured.Unstructured) reliability.Version {
	revision, _ := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	return reliability.Version{Revision: revision, Value: reliability.ValueOf(object.GetAnnotations())}
}

// classify returns the class of a call by its error.
func classify(err error) reliability.Class {
	var unreachable *call.UnreachableError
	switch {
	case err == nil:
		return reliability.OK
	case errors.As(err, &unreachable) && !unreachable.Unknown:
		return reliability.Unavailable
	case call.NotYet(err):
		return reliability.NotYet
	case apierrors.IsConflict(err) && apierrors.ReasonForError(err) == "AlreadyExists", apierrors.IsAlreadyExists(err):
		return reliability.Exists
	case apierrors.IsConflict(err):
		return reliability.Conflict
	case apierrors.IsNotFound(err):
		return reliability.NotFound
	case apierrors.IsServiceUnavailable(err):
		return reliability.Unavailable
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsResourceExpired(err):
		return reliability.Refused
	}
	return reliability.Unknown
}

// seedObjects writes the initial objects.
func (r *rig) seedObjects(ctx context.Context) error {
	w := r.newWriter(writers)
	call := reliability.Call{Writes: []reliability.Write{{Key: reliability.GatewayKey, Verb: reliability.Create, Value: r.values.Add(1)}}}
	if class := w.write(ctx, r.servers[0], call); class != reliability.OK {
		return errors.New("the gateway: " + string(class))
	}
	for _, group := range reliability.Groups() {
		value := r.values.Add(1)
		var all []reliability.Write
		for _, key := range group {
			all = append(all, reliability.Write{Key: key, Verb: reliability.Create, Value: value})
		}
		if class := w.write(ctx, r.servers[0], reliability.Call{Writes: all}); class != reliability.OK {
			return errors.New("a group: " + string(class))
		}
	}
	return nil
}

// writeDirectly writes through a store of the test itself, bypassing all replicas.
func (r *rig) writeDirectly(ctx context.Context, times int) error {
	return r.withStore(ctx, func(ctx context.Context, c *clientv3.Client) error {
		store, err := etcd.New(c, etcd.Options{Schemas: schema.Pilot()})
		if err != nil {
			return err
		}
		singles := reliability.Singles()
		for i := range times {
			one := reliability.Write{Key: singles[i%len(singles)], Verb: reliability.Put, Value: r.values.Add(1)}
			if i%5 == 4 {
				one.Verb, one.Value = reliability.Delete, 0
			}
			if i%7 == 6 {
				if err := r.putDirectly(ctx, store, reliability.Groups()[i%3]); err != nil {
					return err
				}
			}
			if err := r.applyDirectly(ctx, store, []reliability.Write{one}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *rig) putDirectly(ctx context.Context, store *etcd.Store, keys []reliability.Key) error {
	value := r.values.Add(1)
	var all []reliability.Write
	for _, key := range keys {
		all = append(all, reliability.Write{Key: key, Verb: reliability.Put, Value: value})
	}
	return r.applyDirectly(ctx, store, all)
}

func (r *rig) applyDirectly(ctx context.Context, store *etcd.Store, all []reliability.Write) error {
	c := reliability.Call{Client: writers + 1, Replica: "direct", Start: r.now(), Writes: all}
	var ops []storage.Op
	for _, one := range all {
		if one.Verb == reliability.Delete {
			ops = append(ops, storage.Op{Verb: storage.Delete, Key: one.Key.Config()})
			continue
		}
		object := reliability.Object(one.Key, one.Value)
		ops = append(ops, storage.Op{Verb: storage.Put, Config: object})
	}
	revision, _, err := store.Apply(ctx, ops)
	c.End, c.Class = r.now(), classifyStore(err)
	c.Revision, _ = strconv.ParseInt(revision, 10, 64)
	if err != nil {
		c.Error = err.Error()
	}
	r.record(func(h *reliability.History) { h.Calls = append(h.Calls, c) })
	if c.Class == reliability.NotFound {
		return nil
	}
	return err
}

func classifyStore(err error) reliability.Class {
	switch {
	case err == nil:
		return reliability.OK
	case errors.Is(err, storage.ErrNotFound):
		return reliability.NotFound
	case errors.Is(err, storage.ErrUnavailable):
		return reliability.Unavailable
	}
	return reliability.Unknown
}

// working runs the writers until the caller calls stop.
func (r *rig) working(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for i := range writers {
		w := r.newWriter(i)
		running.Go(func() { w.run(ctx) })
	}
	return func() { cancel(); running.Wait() }
}
