package labels_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/storage/labels"
)

func TestSubsetOf(t *testing.T) {
	t.Parallel()
	workload := labels.Instance{"app": "reviews", "version": "v1", "empty": ""}
	for _, test := range []struct {
		name     string
		selector labels.Instance
		want     bool
	}{
		{"nil selects all", nil, true},
		{"the empty one selects all", labels.Instance{}, true},
		{"one label", labels.Instance{"app": "reviews"}, true},
		{"all labels", labels.Instance{"app": "reviews", "version": "v1", "empty": ""}, true},
		{"another value", labels.Instance{"app": "ratings"}, false},
		{"one label of two", labels.Instance{"app": "reviews", "version": "v2"}, false},
		{"a label that is not there", labels.Instance{"zone": "a"}, false},
		{"an empty value is a value", labels.Instance{"empty": ""}, true},
		{"an absent label is not an empty one", labels.Instance{"zone": ""}, false},
		{"more labels than there are", labels.Instance{"app": "reviews", "version": "v1", "empty": "", "zone": "a"}, false},
	} {
		if got := test.selector.SubsetOf(workload); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
	if (labels.Instance{"a": "b"}).SubsetOf(nil) {
		t.Error("a selector selected a workload without labels")
	}
	if !labels.Instance(nil).SubsetOf(nil) {
		t.Error("the empty selector did not select a workload without labels")
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	a := labels.Instance{"a": "1", "b": "2"}
	for _, test := range []struct {
		other labels.Instance
		want  bool
	}{
		{labels.Instance{"b": "2", "a": "1"}, true},
		{labels.Instance{"a": "1"}, false},
		{labels.Instance{"a": "1", "b": "3"}, false},
		{labels.Instance{"a": "1", "c": "2"}, false},
		{nil, false},
	} {
		if a.Equal(test.other) != test.want || test.other.Equal(a) != test.want {
			t.Errorf("%v and %v: equal is not %v", a, test.other, test.want)
		}
	}
	if !labels.Instance(nil).Equal(labels.Instance{}) {
		t.Error("no labels differ from no labels")
	}
}

func TestStringIsInTheOrderOfTheKeys(t *testing.T) {
	t.Parallel()
	for range 20 {
		if got := (labels.Instance{"b": "2", "a": "1", "c": ""}).String(); got != "a=1,b=2,c=" {
			t.Fatalf("got %q", got)
		}
	}
	if got := labels.Instance(nil).String(); got != "" {
		t.Errorf("no labels are %q", got)
	}
}

func TestParseReadsWhatStringWrote(t *testing.T) {
	t.Parallel()
	for _, want := range []labels.Instance{{}, {"a": "1"}, {"b": "2", "a": "1", "c": ""}} {
		if got := labels.Parse(want.String()); !got.Equal(want) {
			t.Errorf("%v was read as %v", want, got)
		}
	}
}
