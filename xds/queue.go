package xds

import "context"

// pushQueue rations the building of configuration: so many connections build at
// one time, the others wait in the order in which they asked. Only a connection
// that is ready to build is in it, never one that waits for its client; and as a
// connection is marked dirty or not, it has one pending push however many
// changes come meanwhile.
type pushQueue struct {
	slots chan struct{} // holds a token for each connection that builds
}

func newPushQueue(size int) *pushQueue { return &pushQueue{slots: make(chan struct{}, size)} }

// enter waits for a turn, which leave gives back. It fails when ctx ends.
func (q *pushQueue) enter(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case q.slots <- struct{}{}:
		return nil
	}
}

func (q *pushQueue) leave() { <-q.slots }
