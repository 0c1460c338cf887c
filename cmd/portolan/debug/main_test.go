package debug

import (
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
)

func TestMain(m *testing.M) { clitest.RunTests(m) }

var line = clitest.CommandLine{Commands: Commands}
