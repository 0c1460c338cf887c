package objects

import (
	"net/http"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

func TestMain(m *testing.M) { clitest.RunTests(m, etcdtest.LeftByMembers()...) }

var line = clitest.CommandLine{Commands: Commands}

func do(t *testing.T, stdin string, args ...string) clitest.Outcome {
	t.Helper()
	return line.Do(t, stdin, args...)
}

func startAPI(t *testing.T) clitest.API {
	t.Helper()
	return line.StartAPI(t)
}

func serving(t *testing.T, answer func(*http.Request) any, args ...string) (clitest.Outcome, error) {
	t.Helper()
	return line.Serving(t, answer, args...)
}
