package journal

import (
	"context"
	"log/slog"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Notes keeps records of what is no object of the store.
type Notes interface {
	// Note keeps one record of several things that were made at one time.
	Note(ctx context.Context, at time.Time, origin storage.Origin, made []config.Key) error
}

// Record is one record of the history.
type Record struct {
	At     time.Time
	Origin storage.Origin
	// About are what it is about, which need not be objects of the store.
	About []config.Key
}

// Source gathers what is to be written.
type Source interface {
	// Next returns the next record and takes it out of the source; false for none now. Last
	// says that this is the last time to ask: what waits for its time is written now.
	Next(now time.Time, last bool) (Record, bool)
}

// interval is how often sources are asked. What a server does so often in a second, whoever
// brings it about, is as many records as its sources make of it.
const interval = time.Second

// Journal writes the records of its sources, one after the other.
type Journal struct {
	notes   Notes
	logger  *slog.Logger
	sources []Source

	pending *Record // which the store has not taken yet
	away    bool    // the store has not taken the last one
}

// New returns a journal. The logger may be nil; nothing is logged then.
func New(notes Notes, logger *slog.Logger, sources ...Source) *Journal {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Journal{notes: notes, logger: logger, sources: sources}
}

// Run writes until ctx ends, and then what is left, for a second at most. It returns nil.
func (j *Journal) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), interval)
			defer cancel()
			j.write(last, true)
			return nil
		case <-ticker.C:
			j.write(ctx, false)
		}
	}
}

// write writes all that its sources have, until the store takes one not.
func (j *Journal) write(ctx context.Context, last bool) {
	for _, source := range j.sources {
		for {
			if j.pending == nil {
				next, ok := source.Next(time.Now(), last)
				if !ok {
					break
				}
				j.pending = &next
			}
			if err := j.notes.Note(ctx, j.pending.At, j.pending.Origin, j.pending.About); err != nil {
				if !j.away {
					j.logger.Warn("the store does not take records of certificates and refusals, which wait", "err", err)
				}
				j.away = true
				return
			}
			j.pending, j.away = nil, false
		}
	}
}
