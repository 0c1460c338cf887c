package table_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1alpha1 "istio.io/api/meta/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/table"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// cell returns the cell of a column, as kubectl gets it.
func cell(t *testing.T, object *config.Config, column string) any {
	t.Helper()
	of := table.Of(object.GroupVersionKind)
	for i, definition := range of.Definitions() {
		if definition.Name == column {
			return of.Cells(object, noon)[i]
		}
	}
	t.Fatalf("%s have no column %s", object.Kind, column)
	return nil
}

func TestPolicyColumns(t *testing.T) {
	t.Parallel()
	ref := func(kind, name string) *typev1beta1.PolicyTargetReference {
		return &typev1beta1.PolicyTargetReference{Kind: kind, Name: name}
	}
	for want, spec := range map[string]*security.AuthorizationPolicy{
		"all":                      {},
		"app=web":                  {Selector: &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}}},
		"gateway/edge":             {TargetRef: ref("Gateway", "edge")},
		"gateway/edge,service/web": {TargetRefs: []*typev1beta1.PolicyTargetReference{ref("Gateway", "edge"), ref("Service", "web")}},
	} {
		object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.AuthorizationPolicy}, Spec: spec}
		if got := cell(t, object, "Selector"); got != want {
			t.Errorf("%v: %q, want %q", spec, got, want)
		}
	}
	deny := &security.AuthorizationPolicy{Action: security.AuthorizationPolicy_DENY}
	for _, c := range []struct {
		spec         *security.AuthorizationPolicy
		dryRun, want string
	}{
		{&security.AuthorizationPolicy{}, "", "ALLOW"}, {deny, "false", "DENY"}, {deny, "true", "DENY (dry run)"},
	} {
		object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.AuthorizationPolicy, Annotations: map[string]string{"istio.io/dry-run": c.dryRun}}, Spec: c.spec}
		if got := cell(t, object, "Action"); got != c.want {
			t.Errorf("%v: %q, want %q", c, got, c.want)
		}
	}
}

// TestConditionCells: a wide table shows the condition Programmed as one word with the number of
// proxies, and findings by their codes.
func TestConditionCells(t *testing.T) {
	t.Parallel()
	type conditions []*metav1alpha1.IstioCondition
	for _, c := range []struct {
		conditions         conditions
		programmed, issues any
	}{
		{nil, nil, nil},
		{conditions{{Type: "Programmed", Status: "True", Reason: "Acknowledged", Message: "2 of 2 proxies concerned have acknowledged it"}}, "Acknowledged 2/2", nil},
		{conditions{
			{Type: "Programmed", Status: "Unknown", Reason: "NoProxies", Message: "no connected proxy got anything from it"},
			{Type: "ResolvedRefs", Status: "False", Reason: "PTL0103", Message: "m"}, {Type: "PartlyServed", Status: "True", Reason: "PTL0121"},
		}, "NoProxies", "PTL0103,PTL0121"},
		{conditions{
			{Type: "Programmed", Status: "False", Reason: "Refused", Message: "1 of 2 proxies concerned have acknowledged it, refused by 1"},
			{Type: "Rejected", Status: "True", Reason: "Refused"}, {Type: "Stalled", Status: "True", Reason: "Refused"}, {Type: "ResolvedRefs", Status: "True", Reason: "R"},
		}, "Refused 1/2", "Refused"},
	} {
		object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.VirtualService}, Spec: &networking.VirtualService{}, Status: &metav1alpha1.IstioStatus{Conditions: c.conditions}}
		if programmed, issues := cell(t, object, "Programmed"), cell(t, object, "Issues"); programmed != c.programmed || issues != c.issues {
			t.Errorf("%v, %v: want %v, %v", programmed, issues, c.programmed, c.issues)
		}
	}
}

// TestTablesBeginWithTheColumnsOfIstio: without -o wide kubectl shows what it shows in a
// cluster with Istio. The names and their order are those of additionalPrinterColumns in
// kubernetes/customresourcedefinitions.gen.yaml of istio.io/api.
func TestTablesBeginWithTheColumnsOfIstio(t *testing.T) {
	t.Parallel()
	for kind, want := range map[config.GroupVersionKind]string{
		schema.VirtualService:      "Name Gateways Hosts Age",
		schema.DestinationRule:     "Name Host Age",
		schema.ServiceEntry:        "Name Hosts Location Resolution Age",
		schema.WorkloadEntry:       "Name Age Address",
		schema.AuthorizationPolicy: "Name Action Age",
		schema.PeerAuthentication:  "Name Mode Age",
		schema.Gateway:             "Name Selector Ports Age",
		schema.Secret:              "Name Type Entries Age",
		schema.Event:               "Last Seen Type Reason Object Message",
		schema.ConfigMap:           "Name Data Age",
	} {
		var shown []string
		for _, d := range table.Of(kind).Definitions() {
			if d.Priority == 0 {
				shown = append(shown, d.Name)
			}
		}
		if got := strings.Join(shown, " "); got != want {
			t.Errorf("%s: %s, want %s", kind.Kind, got, want)
		}
	}
}

// TestTablesHaveTheColumnsOfGet: of each kind, a Table and portolan get -o wide have the same
// columns, each once, and a row has a cell for each.
func TestTablesHaveTheColumnsOfGet(t *testing.T) {
	t.Parallel()
	for _, kind := range schema.Pilot().All() {
		var want []string
		for _, c := range table.Columns(kind.GroupVersionKind) {
			want = append(want, c.Name)
		}
		of := table.Of(kind.GroupVersionKind)
		var got []string
		for _, d := range of.Definitions() {
			got = append(got, d.Name)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || len(slices.Compact(got)) != len(want) {
			t.Errorf("%s: %q, want %q", kind.Kind, got, want)
		}
		object := &config.Config{Meta: config.Meta{GroupVersionKind: kind.GroupVersionKind, Name: "a"}, Spec: kind.Codec.New()}
		if cells := of.Cells(object, noon); len(cells) != len(want) || cells[0] != "a" {
			t.Errorf("%s: %v", kind.Kind, cells)
		}
	}
}

func TestCells(t *testing.T) {
	t.Parallel()
	vs := &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.VirtualService, Name: "web", ResourceVersion: "7", CreationTimestamp: noon.Add(-26 * time.Hour)},
		Spec: &networking.VirtualService{Hosts: []string{"a", "b", "c", "d"}, Http: []*networking.HTTPRoute{{}}},
	}
	if got, want := fmt.Sprint(table.Of(vs.GroupVersionKind).Cells(vs, noon)), "[web mesh a,b,c,d 1d 7 <nil> <nil> store http=1 <nil>]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	unknown := *vs
	unknown.CreationTimestamp, unknown.Spec = time.Unix(0, 0), nil
	if age, hosts := cell(t, &unknown, "Age"), cell(t, &unknown, "Hosts"); age != "<unknown>" || hosts != nil {
		t.Errorf("%v, %v", age, hosts)
	}
}
