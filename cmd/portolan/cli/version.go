package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// versionLine describes this binary.
func versionLine(version string) string {
	return fmt.Sprintf("portolan %s (%s %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newVersionCommand(env *Environment) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(env.Stdout, versionLine(env.Version))
			return err
		},
	}
}
