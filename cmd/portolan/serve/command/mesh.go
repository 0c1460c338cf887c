package command

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// readMeshConfig reads the file of --mesh-config, or gives the defaults.
func readMeshConfig(file string, logger *slog.Logger) (*meshconfig.Config, error) {
	if file == "" {
		return meshconfig.Default(), nil
	}
	document, err := os.ReadFile(file)
	if err != nil {
		return nil, exit.With(exit.Data, fmt.Errorf("--mesh-config: %w", err))
	}
	c, warnings, err := meshconfig.Parse(document)
	if err != nil {
		return nil, exit.With(exit.Data, fmt.Errorf("%s: %w", file, err))
	}
	for _, w := range warnings {
		logger.Warn(w, "file", file)
	}
	return c, nil
}
