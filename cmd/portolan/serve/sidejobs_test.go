package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	sidespec "github.com/portolan-mesh/portolan/storage/side"
	"github.com/portolan-mesh/portolan/storage/status"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// content returns a snapshot of objects and of reports on them.
func content(objects []*config.Config, reports ...*status.Report) *cache.Snapshot {
	var c cache.Content
	for _, object := range objects {
		c.Configs = c.Configs.Set(object.Key().Path(), object)
	}
	for _, r := range reports {
		c.Statuses = c.Statuses.Set(r.Key.Path(), r)
	}
	return (*cache.Snapshot)(nil).Next(1, c)
}

func eventAt(name string, made time.Time, spec sidespec.Event) *config.Config {
	return &config.Config{Meta: config.Meta{GroupVersionKind: schema.Event, Namespace: "shop", Name: name, CreationTimestamp: made}, Spec: &spec}
}

// TestOldEvents: what is an hour old goes, and what is beyond the newest ones. What happened again
// is young, and what claims to be of the future is as old as it was made.
func TestOldEvents(t *testing.T) {
	t.Parallel()
	long := noon.Add(-2 * time.Hour)
	objects := []*config.Config{
		eventAt("old", long, sidespec.Event{}),
		eventAt("again", long, sidespec.Event{LastTimestamp: metav1.NewTime(noon.Add(-time.Minute))}),
		eventAt("future", long, sidespec.Event{EventTime: metav1.NewMicroTime(noon.Add(time.Hour))}),
		eventAt("young", noon.Add(-time.Minute), sidespec.Event{}),
	}
	gone := func(objects []*config.Config) (out []string) {
		for _, op := range oldEvents(content(objects), noon) {
			out = append(out, op.Key.Name)
		}
		slices.Sort(out)
		return out
	}
	if got := gone(objects); !slices.Equal(got, []string{"future", "old"}) {
		t.Errorf("%q go", got)
	}
	for i := range schema.KeptEvents {
		objects = append(objects, eventAt(fmt.Sprint("e", i), noon.Add(-time.Second), sidespec.Event{}))
	}
	if got := gone(objects); !slices.Equal(got, []string{"again", "future", "old", "young"}) {
		t.Errorf("of many %q go", got)
	}
	if got := gone(nil); got != nil {
		t.Errorf("of none %q go", got)
	}
}

func TestNamespacesAdded(t *testing.T) {
	t.Parallel()
	entry := func(namespace, name string) *config.Config {
		return &config.Config{Meta: config.Meta{GroupVersionKind: schema.ServiceEntry, Namespace: namespace, Name: name}}
	}
	from := content([]*config.Config{entry("a", "x"), entry("b", "x")})
	to := content([]*config.Config{entry("a", "x"), entry("a", "y"), entry("c", "x"), entry("d", "x")})
	if got := slices.Sorted(maps.Keys(namespacesAdded(from, to))); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("%q", got)
	}
	if got := slices.Sorted(maps.Keys(namespacesAdded(nil, to))); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("at the start %q", got)
	}
}

// TestHappened: which changes of conditions are events.
func TestHappened(t *testing.T) {
	t.Parallel()
	object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.VirtualService, Namespace: "shop", Name: "reviews", UID: "u"}}
	condition := func(text string) status.Condition {
		parts := strings.Split(text, " ")
		return status.Condition{Type: parts[0], Status: parts[1], Reason: parts[2], Message: "why"}
	}
	report := func(uid string, texts ...string) *status.Report {
		r := &status.Report{Key: object.Key(), UID: uid}
		for _, text := range texts {
			r.Conditions = append(r.Conditions, condition(text))
		}
		return r
	}
	for name, tc := range map[string]struct {
		before, now *status.Report
		want        []string
	}{
		"new and good":         {nil, report("u", "Accepted True Valid", "Programmed Unknown New"), nil},
		"proxies have it":      {report("u", "Programmed False Waiting"), report("u", "Programmed True Acknowledged"), []string{"Normal Acknowledged"}},
		"and still have it":    {report("u", "Programmed True Acknowledged"), report("u", "Accepted True Valid", "Programmed True Acknowledged"), nil},
		"becomes bad":          {report("u", "Accepted True Valid"), report("u", "Accepted False Bad", "ResolvedRefs False PTL0101"), []string{"Warning Bad", "Warning PTL0101"}},
		"bad in another way":   {report("u", "Rejected True Refused"), report("u", "Rejected True NotBuilt"), []string{"Warning NotBuilt"}},
		"bad as before":        {report("u", "Rejected True Refused"), report("u", "Rejected True Refused", "Stalled True Refused"), nil},
		"good again":           {report("u", "Rejected True Refused"), report("u", "Accepted True Valid"), nil},
		"of an earlier object": {nil, report("other", "Accepted False Bad"), nil},
		"of another before":    {report("other", "Accepted False Bad"), report("u", "Accepted False Bad"), []string{"Warning Bad"}},
		"warnings first":       {nil, report("u", "Programmed True Acknowledged", "PartlyServed True PTL0121"), []string{"Warning PTL0121", "Normal Acknowledged"}},
	} {
		from, to := content([]*config.Config{object}), content([]*config.Config{object}, tc.now)
		if tc.before != nil {
			from = content([]*config.Config{object}, tc.before)
		}
		var got []string
		for _, op := range eventOps(happened(from, to), content(nil), noon) {
			e := op.Config.Spec.(*sidespec.Event)
			got = append(got, e.Type+" "+e.Reason)
			if e.InvolvedObject.Name != "reviews" || e.InvolvedObject.UID != "u" || op.Config.Namespace != "shop" || e.Message != "why" || e.Count != 1 {
				t.Errorf("%s: %+v", name, e)
			}
			if _, err := schema.Side().Kind(schema.Event).Validate(op.Config); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestAnEventIsToldOnceMore: what happens again is one event with a count, and a change of very
// many objects is a bounded number of events.
func TestAnEventIsToldOnceMore(t *testing.T) {
	t.Parallel()
	h := happening{&config.Config{Meta: config.Meta{GroupVersionKind: schema.Sidecar, Namespace: "shop", Name: strings.Repeat("a.", 120) + "a", UID: "u"}}, status.Condition{Type: status.Accepted, Status: status.False, Reason: "Bad", Message: strings.Repeat("ä", 5000)}, true}
	first := eventOps([]happening{h}, content(nil), noon)[0].Config
	again := eventOps([]happening{h}, content([]*config.Config{first}), noon.Add(time.Minute))[0].Config
	e := again.Spec.(*sidespec.Event)
	if again.Key() != first.Key() || e.Count != 2 || !e.FirstTimestamp.Time.Equal(noon) || !e.LastTimestamp.Time.Equal(noon.Add(time.Minute)) {
		t.Errorf("%+v", again)
	}
	if _, err := schema.Side().Kind(schema.Event).Validate(again); err != nil {
		t.Error(err)
	}
	var objects []*config.Config
	var reports pmap.Map[*status.Report]
	for i := range 5 * eventsAtOnce {
		object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.Sidecar, Namespace: "shop", Name: fmt.Sprint("s", i), UID: fmt.Sprint(i)}}
		objects = append(objects, object)
		reports = reports.Set(object.Key().Path(), &status.Report{Key: object.Key(), UID: object.UID, Conditions: []status.Condition{h.condition}})
	}
	if got := happened(content(objects), content(objects, slices.Collect(reports.Values())...)); len(got) != eventsAtOnce {
		t.Errorf("%d events at once", len(got))
	}
}
