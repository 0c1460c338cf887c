package journal

import (
	"context"
	"log/slog"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pulse"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// Notes writes records of events that change no object.
type Notes interface {
	// Note writes one record about the objects in made.
	Note(ctx context.Context, at time.Time, origin storage.Origin, made []config.Key) error
}

// Record is one record of the history.
type Record struct {
	At     time.Time
	Origin storage.Origin
	// About names the things that the record is about. They need not be objects of the store.
	About []config.Key
	// Written is called when the store has the record; may be nil. It must not block.
	Written func()
}

// Source collects the events to write.
type Source interface {
	// Next removes the next record from the source and returns it, or returns false if there
	// is none yet. If last is true, no later call follows, so the source must not hold records
	// back.
	Next(now time.Time, last bool) (Record, bool)
	// Wake has a value when somebody waits for a record to be written. It is nil if nobody
	// ever does.
	Wake() <-chan struct{}
}

const (
	// interval is how often the journal polls the source, at the same time as other periodic
	// checks. However many events clients cause in a second, the source decides how many
	// records they become.
	interval = time.Second
	// pause is how long the journal rests after the source woke it, so that events of callers
	// who wait share a record.
	pause = 50 * time.Millisecond
)

// Journal writes the records of a source, one after the other.
type Journal struct {
	notes  Notes
	logger *slog.Logger
	source Source

	pending *Record // a record that the store has not taken yet
	away    bool    // the last write failed
}

// New returns a journal. The logger may be nil; nothing is logged then.
func New(notes Notes, logger *slog.Logger, source Source) *Journal {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Journal{notes: notes, logger: logger, source: source}
}

// Run writes records until ctx ends, then the remaining ones for at most a second. It returns
// nil.
func (j *Journal) Run(ctx context.Context) error {
	poll := time.NewTimer(pulse.Until(interval))
	defer poll.Stop()
	for ctx.Err() == nil {
		woken := false
		select {
		case <-ctx.Done():
		case <-poll.C:
			poll.Reset(pulse.Until(interval))
		case <-j.source.Wake():
			woken = true
		}
		if ctx.Err() != nil {
			break
		}
		j.write(ctx, false)
		if woken {
			_ = retry.Sleep(ctx, pause) // the loop ends with ctx
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), interval)
	defer cancel()
	j.write(last, true)
	return nil
}

// write writes all records of the source, until a write fails.
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
