package longtest_test

import (
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/longtest"
)

// double is a testing.TB with a given name. It records whether Fatalf was called.
type double struct {
	testing.TB
	name  string
	ended bool
}

func (d *double) Helper()      {}
func (d *double) Name() string { return d.name }
func (d *double) Fatalf(string, ...any) {
	d.ended = true
	panic(d)
}

func (d *double) soak() time.Duration {
	defer func() {
		if r := recover(); r != nil && r != any(d) {
			panic(r)
		}
	}()
	return longtest.Soak(d)
}

func TestEnvironmentTellsTheForm(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        time.Duration
		ends        bool
	}{
		{name: "TestSoakKills", want: 0},
		{name: "TestSoakKills/member", value: "20m", want: 20 * time.Minute},
		{name: "FuzzDecode", value: "1h30m", want: 90 * time.Minute},
		{name: "TestSoakKills", value: "20", ends: true},
		{name: "TestSoakKills", value: "-1m", ends: true},
		{name: "TestSoakKills", value: "0s", ends: true},
		{name: "TestKills", ends: true},
		{name: "TestKillsSoak", value: "20m", ends: true},
	} {
		t.Run(c.name+" "+c.value, func(t *testing.T) {
			t.Setenv(longtest.Variable, c.value)
			d := &double{TB: t, name: c.name}
			if got := d.soak(); got != c.want || d.ended != c.ends {
				t.Errorf("it takes %v and is ended: %v; want %v and %v", got, d.ended, c.want, c.ends)
			}
		})
	}
}
