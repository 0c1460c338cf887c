package remote

import (
	"context"
	"net/http"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
)

// LogLevels returns the log levels of the server.
func (c Server) LogLevels(ctx context.Context) (*maintenance.LogLevels, error) {
	out := &maintenance.LogLevels{}
	if err := c.JSON(ctx, maintenance.LogLevelsPath, out); err != nil {
		return nil, err
	}
	return out, nil
}

// SetLogLevels changes log levels of the server, and returns those.
func (c Server) SetLogLevels(ctx context.Context, in maintenance.LogLevelChange) (*maintenance.LogLevels, error) {
	out := &maintenance.LogLevels{}
	if _, err := c.Do(ctx, call.Request{Method: http.MethodPost, Path: maintenance.LogLevelsPath, Body: in}, out); err != nil {
		return nil, err
	}
	return out, nil
}
