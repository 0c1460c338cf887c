package transcript

import (
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// maxGone bounds the logs of clients that are gone: those of the last ones stay.
const maxGone = 500

// Book has the logs of all clients of a server.
type Book struct {
	mu   sync.Mutex // guards the fields below
	open map[string]*Log
	gone *simplelru.LRU[string, *Log]
}

// NewBook returns an empty Book.
func NewBook() *Book {
	gone, err := simplelru.NewLRU[string, *Log](maxGone, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Book{open: map[string]*Log{}, gone: gone}
}

// Open begins a stream of a client, by its node id. from says where it is from. Close must
// follow.
func (b *Book) Open(node, from string) *Stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := b.open[node]
	if log == nil {
		if log, _ = b.gone.Peek(node); log == nil {
			log = &Log{}
		}
		b.gone.Remove(node)
		b.open[node] = log
	}
	log.streams++
	s := &Stream{log: log}
	s.note(Entry{Event: Connected, Message: from})
	return s
}

// Close ends a stream, for a reason.
func (b *Book) Close(node string, s *Stream, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.note(Entry{Event: Ended, Message: why})
	if s.log.streams--; s.log.streams == 0 {
		delete(b.open, node)
		b.gone.Add(node, s.log)
	}
}

// Find returns the log of a client; nil if there is none.
func (b *Book) Find(node string) *Log {
	b.mu.Lock()
	defer b.mu.Unlock()
	if log := b.open[node]; log != nil {
		return log
	}
	log, _ := b.gone.Peek(node)
	return log
}

// Gone returns the node ids of the clients that are gone and have a log yet, in order.
func (b *Book) Gone() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(slices.Values(b.gone.Keys()))
}
