package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// leftSuffix is added to the name of the file of an agent that has left.
const leftSuffix = ".left"

func newLeave(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "leave",
		Short: "Take this machine out of the mesh: the opposite of join",
		Long: `Take this machine out of the mesh: the opposite of join.

The servers are told, the Envoy drains, the agent ends, the rules of capture go, and the
certificate, its key and the last good configuration are deleted. The file of the agent
is kept beside its place, with .left after its name, so that no service starts the agent
again. A certificate that somebody has copied stays good until it ends.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			file, err := config.Read(env.config)
			if err != nil {
				return exit.With(exit.Data, err)
			}
			if err := os.Rename(env.config, env.config+leftSuffix); err != nil {
				return exit.With(exit.Data, fmt.Errorf("%w: run this as root", err))
			}
			untold, err := callAgent(c.Context(), file.StatusSocket(), http.MethodPost, "/leave")
			if err != nil && !exit.Is(err, exit.Unreachable) {
				return errors.Join(err, os.Rename(env.config+leftSuffix, env.config))
			}
			for await := retry.New(10*time.Millisecond, 100*time.Millisecond); ; {
				if _, err := callAgent(c.Context(), file.StatusSocket(), http.MethodGet, "/status"); exit.Is(err, exit.Unreachable) {
					break
				}
				if err := await.Wait(c.Context()); err != nil {
					return err
				}
			}
			if file.Capture != nil {
				if err := firewall(file).Remove(c.Context()); err != nil {
					return fmt.Errorf("%w: the rules of capture may still be in force: run portolan-agent capture remove --config %s as root", err, env.config+leftSuffix)
				}
			}
			forgotten := forget(file)
			if env.config == config.DefaultFile {
				forgotten = errors.Join(forgotten, takeCapabilities(unitDropIns), reloadUnits(c.Context()))
			}
			if forgotten != nil {
				return forgotten
			}
			if err != nil || len(untold) > 0 { // err is that nobody runs
				fmt.Fprintln(env.stdout, "No server was told: the machine's entry goes with its lease.")
			}
			fmt.Fprintf(env.stdout, "This machine has left the mesh. What its agent did is in %s.\n", env.config+leftSuffix)
			return nil
		},
	}
}

// forget deletes what the agent keeps, and nothing else.
func forget(c config.Config) error {
	var err error
	for _, path := range []string{c.Certificate(), c.Kept(), c.Drained(), filepath.Join(c.State, "envoy-base-id"), filepath.Join(c.Run, envoyFile), filepath.Join(c.Run, grpcFile)} {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// takeLeave ends the agent for good.
func (a *agent) takeLeave(w http.ResponseWriter, _ *http.Request) {
	a.forGood.Store(true)
	if a.capture != nil {
		a.capture.Release()
	}
	a.answer(w, nil, a.untold())
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	a.end()
}
