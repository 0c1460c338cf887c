package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
)

// Call does something with a client of the server, within --request-timeout.
func (e *Environment) Call(ctx context.Context, do func(context.Context, *client.Client) error) error {
	return e.CallFor(ctx, e.Timeout, do)
}

// CallFor is like Call with another timeout; 0 means no limit.
func (e *Environment) CallFor(ctx context.Context, timeout time.Duration, do func(context.Context, *client.Client) error) error {
	e = e.Reaching(ctx)
	token, err := e.Credentials.Bearer()
	if err != nil {
		return err
	}
	by, err := e.Files.Client(e.Server)
	if err != nil {
		return err
	}
	c, err := client.New(e.Server, call.Options{
		HTTP: by, Token: token, Tokens: e.Credentials.Source(),
		UserAgent: e.Agent(), Patience: e.Patience, Waiting: e.PrintWaiting,
	})
	if err != nil {
		return exit.With(exit.Usage, fmt.Errorf("--server: %w", err))
	}
	defer c.Close()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return e.explainCredentials(e.ExplainTimeout(do(ctx, c)))
}

// PrintWaiting prints that the command waits for a server that may be starting.
func (e *Environment) PrintWaiting() {
	fmt.Fprintf(e.Stderr, "No server listens at %s yet; waiting up to %s for it.\n", e.Server, e.Patience)
}

// ExplainTimeout adds to a timeout which flag sets it.
func (e *Environment) ExplainTimeout(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w (waited %s, see --request-timeout)", err, e.Timeout)
	}
	return err
}
