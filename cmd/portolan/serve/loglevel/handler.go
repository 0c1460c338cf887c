package loglevel

import (
	"context"
	"log/slog"
	"slices"
)

// handler writes the lines that the level of their component lets through.
type handler struct {
	to        slog.Handler
	component Component
	level     *slog.LevelVar // of the component
	levels    *Levels
	written   bool // to has the component already
}

// NewHandler returns a handler that writes lines to another one, which is to take all levels. The last
// attribute of a line is its component. The attribute of a Component selects it; until then lines are
// of Server.
func NewHandler(to slog.Handler, levels *Levels) slog.Handler {
	return handler{to: to, component: Server, level: levels.vars[Server], levels: levels}
}

// Enabled implements slog.Handler.
func (h handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level.Level() }

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.written {
		r = r.Clone()
		r.AddAttrs(h.component.Attr())
	}
	return h.to.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	others := slices.Clone(attrs)
	others = slices.DeleteFunc(others, func(a slog.Attr) bool {
		level, ok := h.levels.vars[Component(a.Value.String())]
		if a.Key != key || !ok || h.written {
			return false
		}
		h.component, h.level = Component(a.Value.String()), level
		return true
	})
	if len(others) > 0 {
		h.to = h.to.WithAttrs(others)
	}
	return h
}

// WithGroup implements slog.Handler. The component is not in the group.
func (h handler) WithGroup(name string) slog.Handler {
	if !h.written {
		h.to, h.written = h.to.WithAttrs([]slog.Attr{h.component.Attr()}), true
	}
	h.to = h.to.WithGroup(name)
	return h
}
