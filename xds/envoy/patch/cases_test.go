package patch_test

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/envoy/patch/patchtest"
)

// trial is a case of testdata/cases: patches on a base.
type trial struct {
	Name, Base string
	In         string // another context than that of the base
	At         patch.Place
	Patches    json.RawMessage
	// Want has what is at each path afterwards; of "removed: true" nothing.
	Want map[string]string
	// Removed and Same say that the message is removed, and that it is the same as before.
	Removed, Same bool
	// Applied are the indexes of the patches that apply, all of them if empty and none are Same.
	// Failed has what is said of those that fail, by index.
	Applied string
	Failed  map[string]string
}

// TestPatches: the cases of testdata/cases.
func TestPatches(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("testdata/cases")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, file := range files {
		text, err := os.ReadFile("testdata/cases/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		var trials []trial
		if err := yaml.UnmarshalStrict(text, &trials); err != nil {
			t.Fatalf("%s: %v", file.Name(), err)
		}
		count += len(trials)
		for _, c := range trials {
			t.Run(strings.TrimSuffix(file.Name(), ".yaml")+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				c.run(t)
			})
		}
	}
	if count < 80 {
		t.Errorf("there are %d cases", count)
	}
}

func (c trial) run(t *testing.T) {
	b := patchtest.BaseOf(t, c.Base)
	m, at := b.Message, b.Place
	if c.At != (patch.Place{}) {
		c.At.Context = at.Context
		at = c.At
	}
	if c.In != "" {
		at.Context = networking.EnvoyFilter_PatchContext(networking.EnvoyFilter_PatchContext_value[c.In])
	}
	spec := &networking.EnvoyFilter{}
	fromYAML(t, c.Name, []byte(`{"configPatches": `+string(c.Patches)+`}`), spec)
	patches := patch.Parse("shop", "a", time.Unix(1, 0), spec).Patches
	before := proto.Clone(m)
	got, results := patchtest.Apply(m, at, patches)
	if !proto.Equal(before, m) {
		t.Error("the message that came in is modified")
	}
	c.checkResults(t, patches, results)
	switch {
	case c.Removed != (got == nil):
		t.Fatalf("removed: %v", got == nil)
	case c.Removed:
		return
	case c.Same && got != m:
		t.Errorf("it is not the same message")
	}
	if c.Same {
		return
	}
	for path, want := range c.Want {
		if found := envoytest.Look(t, got, path); found != want {
			t.Errorf("%s is %q, want %q", path, found, want)
		}
	}
	envoytest.CheckValid(t, got)
}

func (c trial) checkResults(t *testing.T, patches []*patch.Patch, results []patch.Result) {
	t.Helper()
	var applied []string
	failed := map[string]string{}
	for _, p := range patches {
		if p.Err != nil {
			failed[strconv.Itoa(p.Index)] = p.Err.Error()
		}
	}
	for _, r := range results {
		if index := strconv.Itoa(r.Patch.Index); r.Err != nil {
			failed[index] = r.Err.Error()
		} else {
			applied = append(applied, index)
		}
	}
	want := c.Applied
	if want == "" && !c.Same && len(c.Failed) == 0 {
		var all []string
		for i := range patches {
			all = append(all, strconv.Itoa(i))
		}
		want = strings.Join(all, " ")
	}
	if got := strings.Join(applied, " "); got != want {
		t.Errorf("%q apply, want %q", got, want)
	}
	for index, text := range c.Failed {
		if !strings.Contains(failed[index], text) {
			t.Errorf("of patch %s: %q, want %q", index, failed[index], text)
		}
	}
	for index, text := range failed {
		if _, ok := c.Failed[index]; !ok {
			t.Errorf("patch %s fails: %s", index, text)
		}
	}
}
