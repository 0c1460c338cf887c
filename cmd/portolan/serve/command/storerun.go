package command

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/storage/etcd/member"
)

// storeRunArgs are the arguments of the command that runs the embedded etcd.
var storeRunArgs = []string{"store", "run"}

// NewStoreRun returns the hidden command that runs the embedded etcd.
func NewStoreRun(stderr io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:    "run",
		Short:  "Run the embedded etcd of a server (started by serve)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			logger := slog.New(slog.NewTextHandler(stderr, nil)).With("process", "store")
			return member.RunChild(context.WithoutCancel(c.Context()), logger)
		},
	}
}
