package dial_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	password := func() (string, error) { return "x", nil }
	for name, o := range map[string]dial.Options{
		"no endpoints":                {},
		"a user without a password":   {Endpoints: []string{"localhost:1"}, User: "u"},
		"a password that is nobody's": {Endpoints: []string{"localhost:1"}, Password: password},
	} {
		if client, err := dial.New(o); err == nil {
			_ = client.Close()
			t.Errorf("%s: no error", name)
		}
	}
}
