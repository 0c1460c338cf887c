package schema

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-multierror"

	"github.com/portolan-mesh/portolan/storage/config"
)

// chest is the spec of a kind whose fields stand at the top level.
type chest struct {
	Type  string            `json:"type,omitempty"`
	Data  map[string][]byte `json:"data,omitempty"`
	Locks []lock            `json:"locks,omitempty"`
}

type lock struct {
	Key  string `json:"key,omitempty"`
	Rust int    `json:"rust,omitempty"`
}

func (*chest) TopLevel() {}

// TestADefinitionAtTheTopLevel: faults and warnings have the paths of the document.
func TestADefinitionAtTheTopLevel(t *testing.T) {
	t.Parallel()
	kind := definition[*chest]{
		kind: config.GroupVersionKind{Version: "v1", Kind: "Chest"}, plural: "chests", codec: config.JSON[chest](),
		served: serve("data").with("locks", serve("key")).refuse("type", "is not allowed at sea"),
		check: func(c checker, s *chest) {
			each(c.at("locks"), s.Locks, func(c checker, l lock) { c.at("key").required(l.Key) })
			c.at("data").key("a").fail("is too heavy")
		},
	}.schema()
	text := `{"apiVersion":"v1","kind":"Chest","metadata":{"name":"a","namespace":"sea"},"type":"oak","data":{"a":"AAEC"},"locks":[{"rust":3}]}`
	object, err := config.FromJSON([]byte(text), NewSet(kind).Type)
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := kind.Validate(object)
	if want := "locks[0].key: is missing|data[a]: is too heavy|type: is not allowed at sea"; faultsOf(err) != want {
		t.Errorf("faults are %s, want %s", faultsOf(err), want)
	}
	if d := cmp.Diff([]string{"locks[0].rust is not served yet and has no effect (PTL0121)"}, lines(warnings)); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
	object.Spec = nil
	if _, err := kind.Validate(object); faultsOf(err) != "is missing: Chest needs one" {
		t.Error(err)
	}
}

// faultsOf are the faults of a validation in one line.
func faultsOf(err error) string {
	var all []string
	if many, ok := err.(*multierror.Error); ok { //nolint:errorlint // as documented
		for _, one := range many.Errors {
			all = append(all, one.Error())
		}
	}
	return strings.Join(all, "|")
}

// ship is the spec of a kind that is a Go struct.
type ship struct {
	Name  string            `json:"name,omitempty"`
	Crew  []sailor          `json:"crew,omitempty"`
	Sails *sails            `json:"sails,omitempty"`
	Flags map[string]string `json:"flags,omitempty"`
	Guns  int               `json:"guns,omitempty"`
}

type sailor struct {
	Name string `json:"name,omitempty"`
	Rank string `json:"rank,omitempty"`
}

type sails struct {
	Main int `json:"main,omitempty"`
	Jib  int `json:"jib,omitempty"`
}

// TestADefinitionOfAGoStruct: rules and tables of served fields work as for any kind.
func TestADefinitionOfAGoStruct(t *testing.T) {
	t.Parallel()
	kind := definition[*ship]{
		kind: config.GroupVersionKind{Version: "v1", Kind: "Ship"}, plural: "ships", codec: config.JSON[ship](),
		served: serve("name", "flags").with("crew", serve("name")).with("sails", serve("main")).refuse("guns", "is not allowed in port"),
		check: func(c checker, s *ship) {
			c.at("name").required(s.Name)
			unique(c.at("crew"), s.Crew, func(s sailor) string { return s.Name }, "name")
		},
	}.schema()
	text := `{"apiVersion":"v1","kind":"Ship","metadata":{"name":"a","namespace":"sea"},
		"spec":{"crew":[{"name":"x","rank":"mate"},{"name":"x"}],"sails":{"main":1,"jib":2},"flags":{"a":"b"},"guns":3}}`
	object, err := config.FromJSON([]byte(text), NewSet(kind).Type)
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := kind.Validate(object)
	var faults []string
	if many, ok := err.(*multierror.Error); ok { //nolint:errorlint // as documented
		for _, one := range many.Errors {
			faults = append(faults, one.Error())
		}
	}
	if d := cmp.Diff([]string{
		"spec.name: is missing", `spec.crew[1].name: "x" is set twice, also at spec.crew[0].name`, "spec.guns: is not allowed in port",
	}, faults); d != "" {
		t.Errorf("faults (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{
		"spec.crew[0].rank is not served yet and has no effect (PTL0121)", "spec.sails.jib is not served yet and has no effect (PTL0121)",
	}, lines(warnings)); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
	if _, err := NewSet(kind).Resolve("v2", "Ship"); err == nil || !strings.HasSuffix(err.Error(), `kind Ship is not served as apiVersion "v2": use v1`) {
		t.Error(err)
	}
	if _, err := NewSet(kind).Resolve("sea.example/v1", "Ship"); err == nil || !strings.Contains(err.Error(), `unknown kind "Ship"`) {
		t.Error(err)
	}
}

// lines are warnings as users get them.
func lines(warnings []Warning) []string {
	var out []string
	for _, w := range warnings {
		out = append(out, w.String())
	}
	return out
}
