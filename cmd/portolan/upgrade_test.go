package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cache/rest"
	"github.com/portolan-mesh/portolan/cache/rest/maintenance"
	"github.com/portolan-mesh/portolan/cache/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// formats is a maintenance.Formatter that has one answer.
type formats maintenance.Format

func (f formats) StoreFormat(context.Context) (maintenance.Format, error) {
	return maintenance.Format(f), nil
}

// TestUpgradeCheckTellsWhatIsNew: which kinds the server or the program does not know, and what
// the server says of who is let in. None of it is a problem.
func TestUpgradeCheckTellsWhatIsNew(t *testing.T) {
	t.Parallel()
	var all []string
	for _, kind := range schema.Pilot().All() {
		all = append(all, kind.Plural)
	}
	for what, c := range map[string]struct {
		kinds []string
		notes []string
		want  []string
	}{
		"one version":      {kinds: all, want: []string{"All is well.\n"}},
		"a server before":  {want: []string{"All is well.\n- the server is of a version before users", "Upgrade all servers of the store, then make the first user"}},
		"an older server":  {kinds: slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == "users" || name == "roles" }), want: []string{"- the server does not know roles, users: "}},
		"a newer server":   {kinds: append(slices.Clone(all), "novelties"), want: []string{"- this program does not know novelties: "}},
		"what it says too": {kinds: all, notes: []string{"there is no user yet"}, want: []string{"All is well.\n- there is no user yet\n"}},
	} {
		format := maintenance.Format{Server: maintenance.ServerFormat{StorageFormat: etcd.StorageFormat, MinReader: etcd.MinReader, Kinds: c.kinds}, Notes: c.notes}
		a := api{resttest.Start(t, 0, nil, func(s *rest.Server) { maintenance.Register(s, maintenance.Options{Format: formats(format)}) })}
		o := do(t, "", "upgrade", "check", "--server", a.URL)
		if o.code != exitOK {
			t.Errorf("%s: %+v", what, o)
		}
		for _, want := range c.want {
			if !strings.Contains(o.out, want) {
				t.Errorf("%s: nothing of %q in\n%s", what, want, o.out)
			}
		}
		if what == "one version" && strings.Contains(o.out, "\n- ") {
			t.Errorf("%s: %s", what, o.out)
		}
	}
}
