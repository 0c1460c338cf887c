package plan_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/plan"
	"github.com/portolan-mesh/portolan/storage/schema"
)

func kind(name string, clusterScoped bool) *schema.Schema {
	return &schema.Schema{
		GroupVersionKind: config.GroupVersionKind{Group: "example.com", Version: "v1", Kind: name},
		Versions:         []string{"v1", "v1beta1"},
		ClusterScoped:    clusterScoped,
		Codec:            config.Protobuf[wrapperspb.StringValue](),
	}
}

var (
	zone    = kind("Zone", true)
	ship    = kind("Ship", false)
	schemas = schema.NewSet(zone, ship)
)

func object(k *schema.Schema, namespace, name, spec string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: k.GroupVersionKind, Namespace: namespace, Name: name},
		Spec: wrapperspb.String(spec),
	}
}

func stamp() plan.Stamp {
	return plan.Stamp{
		Now:    time.Date(2030, 1, 1, 0, 0, 0, 999, time.UTC),
		NewUID: func() string { return "new" },
		Domain: "mesh.internal",
	}
}

func TestKeyFollowsTheScopeOfTheKind(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		kind            *schema.Schema
		namespace, name string
		ok              bool
	}{
		"namespaced":                   {ship, "sea", "a", true},
		"namespaced without namespace": {ship, "", "a", false},
		"cluster-scoped":               {zone, "", "a", true},
		"cluster-scoped in one":        {zone, "sea", "a", false},
		"without a name":               {zone, "", "", false},
		"the placeholder as name":      {zone, "", "_", false},
		"the placeholder as namespace": {ship, "_", "a", false},
		"a slash":                      {ship, "sea", "a/b", false},
		"NUL":                          {ship, "sea", "a\x00", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			older := tt.kind.GroupVersionKind
			older.Version = "v1beta1"
			key, err := plan.Key(schemas, older, tt.name, tt.namespace)
			want := config.Key{Kind: tt.kind.GroupVersionKind, Namespace: tt.namespace, Name: tt.name}
			switch {
			case tt.ok && (err != nil || key != want):
				t.Errorf("key is %v, %v, want %v", key, err, want)
			case !tt.ok && !errors.Is(err, storage.ErrInvalid):
				t.Errorf("key is %v, %v, want ErrInvalid", key, err)
			}
		})
	}
}

func TestDecideStampsNewObjectsAndKeepsTheStampOfOldOnes(t *testing.T) {
	t.Parallel()
	before := object(ship, "sea", "old", "1")
	before.CreationTimestamp = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	before.UID, before.Generation, before.ResourceVersion = "old", 7, "3"
	steps, err := plan.New(schemas, []storage.Op{
		{Verb: storage.Create, Config: object(zone, "", "new", "1")},
		{Verb: storage.Put, Config: object(ship, "sea", "old", "2")},
	}).Decide(map[config.Key]*config.Config{before.Key(): before}, stamp())
	if err != nil {
		t.Fatal(err)
	}
	created, changed := object(zone, "", "new", "1"), object(ship, "sea", "old", "2")
	created.Domain, changed.Domain = "mesh.internal", "mesh.internal"
	created.CreationTimestamp, changed.CreationTimestamp = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), before.CreationTimestamp
	created.UID, changed.UID = "new", "old"
	created.Generation, changed.Generation = 1, 8
	want := []plan.Step{
		{Key: created.Key(), Outcome: storage.Created, After: created},
		{Key: changed.Key(), Outcome: storage.Configured, Before: before, After: changed},
	}
	if d := cmp.Diff(want, steps, protocmp.Transform()); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
}

func TestAnUnreadableObjectBeginsAnew(t *testing.T) {
	t.Parallel()
	broken := object(ship, "sea", "a", "")
	broken.Spec, broken.ResourceVersion = nil, "3"
	stored := map[config.Key]*config.Config{broken.Key(): broken}
	steps, err := plan.New(schemas, []storage.Op{{Verb: storage.Update, Config: object(ship, "sea", "a", "1")}}).Decide(stored, stamp())
	if err != nil || steps[0].Outcome != storage.Configured || steps[0].After.UID != "new" || steps[0].After.Generation != 1 {
		t.Errorf("update: %+v, %v", steps, err)
	}
	stale := object(ship, "sea", "a", "1")
	stale.ResourceVersion = "2"
	_, err = plan.New(schemas, []storage.Op{{Verb: storage.Update, Config: stale}}).Decide(stored, stamp())
	if !errors.Is(err, storage.ErrConflict) {
		t.Errorf("stale update: %v, want ErrConflict", err)
	}
}

// TestKeepSpec: an operation with KeepSpec fails with that error if it would create the
// object or change the spec, and succeeds if it leaves the spec alone.
func TestKeepSpec(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	stored := object(ship, "sea", "a", "1")
	labelled := object(ship, "sea", "a", "1")
	labelled.Labels = map[string]string{"a": "b"}
	unreadable := object(ship, "sea", "a", "1")
	unreadable.Spec = nil
	for name, tt := range map[string]struct {
		op     storage.Op
		before *config.Config
		want   error
	}{
		"a new object":            {storage.Op{Verb: storage.Put, Config: stored}, nil, mine},
		"a create":                {storage.Op{Verb: storage.Create, Config: stored}, nil, mine},
		"a create of one there":   {storage.Op{Verb: storage.Create, Config: stored}, stored, storage.ErrExists},
		"an update of none":       {storage.Op{Verb: storage.Update, Config: stored}, nil, storage.ErrNotFound},
		"nothing changed":         {storage.Op{Verb: storage.Put, Config: stored}, stored, nil},
		"labels":                  {storage.Op{Verb: storage.Update, Config: labelled}, stored, nil},
		"a spec":                  {storage.Op{Verb: storage.Update, Config: object(ship, "sea", "a", "2")}, stored, mine},
		"one that cannot be read": {storage.Op{Verb: storage.Put, Config: stored}, unreadable, mine},
		"a delete":                {storage.Op{Verb: storage.Delete, Key: stored.Key()}, stored, nil},
	} {
		tt.op.KeepSpec = mine
		before := map[config.Key]*config.Config{}
		if tt.before != nil {
			before[tt.before.Key()] = tt.before
		}
		if _, err := plan.New(schemas, []storage.Op{tt.op}).Decide(before, stamp()); tt.want == nil && err != nil || !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

func TestOnlySoundCreatesNeedNoRead(t *testing.T) {
	t.Parallel()
	create := storage.Op{Verb: storage.Create, Config: object(ship, "sea", "a", "1")}
	for name, tt := range map[string]struct {
		ops  []storage.Op
		want bool
	}{
		"creates":             {[]storage.Op{create}, true},
		"none":                {nil, false},
		"a put among them":    {[]storage.Op{create, {Verb: storage.Put, Config: object(ship, "sea", "b", "1")}}, false},
		"a fault among them":  {[]storage.Op{create, {Verb: storage.Create}}, false},
		"one object twice":    {[]storage.Op{create, create}, false},
		"a delete by itself ": {[]storage.Op{{Verb: storage.Delete, Key: object(ship, "sea", "a", "").Key()}}, false},
	} {
		if got := plan.New(schemas, tt.ops).OnlyCreates(); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
