package lastknown

import (
	"context"
	"maps"
	"slices"
	"time"
)

// storeMemory is the Memory of a store.
type storeMemory struct {
	store Store
	now   func() time.Time
}

// In returns a Memory that reads the content saved in a store. now is the clock; nil means the
// system's clock.
func In(store Store, now func() time.Time) Memory {
	if now == nil {
		now = time.Now
	}
	return storeMemory{store, now}
}

// Recall implements Memory. It ignores content that nobody has followed for MaxAge.
func (s storeMemory) Recall(ctx context.Context, source string) (Recalled, error) {
	content, err := s.store.ReadRegistry(ctx, source)
	if err != nil || content.Head == nil || s.now().Sub(content.Head.Touched) >= MaxAge {
		return Recalled{}, err
	}
	out := Recalled{Confirmed: content.Head.Confirmed, State: content.Head.State, Items: map[string][]byte{}}
	// While a save goes on, two buckets may have an item: the last one has it where it belongs.
	for _, number := range slices.Sorted(maps.Keys(content.Buckets)) {
		maps.Copy(out.Items, content.Buckets[number].Items)
	}
	return out, nil
}
