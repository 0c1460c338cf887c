package cli

import (
	"context"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
)

// completionTimeout bounds how long a shell waits for names.
const completionTimeout = time.Second

// Offer calls the server for a shell's completion. It gives up soon, and never prints an
// error.
func (e *Environment) Offer(ctx context.Context, do func(context.Context, *client.Client) error) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	_ = e.With(func(e *Environment) { e.Patience = 0 }).Call(ctx, do)
}
