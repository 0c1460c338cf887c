package serve

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, etcdtest.LeftByMembers()...) }
