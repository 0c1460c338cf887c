package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
)

// storeRunArgs returns the arguments of the command that runs the embedded etcd.
func (o *logFlags) storeRunArgs() []string {
	return []string{"store", "run", "--log-format", o.format}
}

// NewStoreRun returns the hidden command that runs the embedded etcd.
func NewStoreRun(stderr io.Writer) *cobra.Command {
	log := logFlags{levels: "info"}
	c := &cobra.Command{
		Use:    "run",
		Short:  "Run the embedded etcd of a server (started by serve)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := log.checkFormat(); err != nil {
				return exit.With(exit.Usage, fmt.Errorf("--log-format: %w", err))
			}
			logger, levels := log.logger(stderr)
			return member.RunChild(context.WithoutCancel(c.Context()), logger.With(loglevel.Store.Attr(), "process", "store"), func(text string) {
				if spec, err := loglevel.Parse(text); err == nil { // the server has written it
					levels.Set(spec, 0)
				}
			})
		},
	}
	log.registerFormat(c.Flags())
	return c
}
