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
	// Written is called when the store has taken the record; nil for none. It must not block.
	Written func()
}

// Source gathers the events to write.
type Source interface {
	// Next returns the next record and takes it out of the source; false for none now. Last
	// says that this is the last time to ask: what waits for its time is written now.
	Next(now time.Time, last bool) (Record, bool)
	// Wake has a value when somebody waits for a record to be written. It is nil where nobody
	// does.
	Wake() <-chan struct{}
}

const (
	// interval is how often the journal asks a source that does not wake it. However many
	// events clients cause in a second, the source decides how many records they become.
	interval = time.Second
	// pause is the least time between two times that a source is asked: who waits then shares
	// a record.
	pause = 50 * time.Millisecond
)

// Journal writes the records of a source, one after the other.
type Journal struct {
	notes  Notes
	logger *slog.Logger
	source Source

	pending *Record // which the store has not taken yet
	away    bool    // the store has not taken the last one
}

// New returns a journal. The logger may be nil; nothing is logged then.
func New(notes Notes, logger *slog.Logger, source Source) *Journal {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Journal{notes: notes, logger: logger, source: source}
}

// Run writes until ctx ends, and then what is left, for a second at most. It returns nil.
func (j *Journal) Run(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	rest := time.NewTimer(pause)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-j.source.Wake():
		}
		if ctx.Err() == nil {
			j.write(ctx, false)
			rest.Reset(pause)
			select {
			case <-ctx.Done():
			case <-rest.C:
				continue
			}
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), interval)
		defer cancel()
		j.write(last, true)
		return nil
	}
}

// write writes all that the source has, until the store takes one not.
func (j *Journal) write(ctx context.Context, last bool) {
	for {
		if j.pending == nil {
			next, ok := j.source.Next(time.Now(), last)
			if !ok {
				return
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
		if j.pending.Written != nil {
			j.pending.Written()
		}
		j.pending, j.away = nil, false
	}
}
