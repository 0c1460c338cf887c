package serve

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
	"github.com/portolan-mesh/portolan/storage"
)

// log returns the log of a component.
func (o *Options) log(of loglevel.Component) *slog.Logger { return o.Logger.With(of.Attr()) }

// log returns the log of a component.
func (s *server) log(of loglevel.Component) *slog.Logger { return s.logger.With(of.Attr()) }

// logs lets operators see and change the log levels.
type logs struct{ server *server }

// LogLevels implements maintenance.Logs.
func (l logs) LogLevels() []maintenance.LogLevel { return shown(l.server.o.LogLevels.States()) }

// SetLogLevels implements maintenance.Logs. The log says who did it.
func (l logs) SetLogLevels(ctx context.Context, levels string, limit time.Duration) ([]maintenance.LogLevel, error) {
	spec, err := loglevel.Parse(levels)
	if err != nil {
		return nil, fmt.Errorf("%w: levels: %w", storage.ErrInvalid, err)
	}
	out := shown(l.server.o.LogLevels.Set(spec, limit))
	by := []any{"levels", spec.String(), "by", storage.OriginOf(ctx).User}
	if limit > 0 {
		by = append(by, "for", limit.String())
	}
	l.server.logger.Info("log levels were changed", by...)
	return out, nil
}

func shown(states []loglevel.State) []maintenance.LogLevel {
	var out []maintenance.LogLevel
	for _, s := range states {
		one := maintenance.LogLevel{Component: string(s.Component), Level: loglevel.Word(s.Level), Was: loglevel.Word(s.Was)}
		if !s.Until.IsZero() {
			one.Until, one.Then = s.Until.UTC(), loglevel.Word(s.Then)
		}
		out = append(out, one)
	}
	return out
}
