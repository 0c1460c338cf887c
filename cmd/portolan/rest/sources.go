package rest

import (
	"fmt"
	"iter"
	"strconv"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// sourceStore is the value of the list parameter source for the objects of the store
// only, even those that an object of another source shadows.
const sourceStore = "store"

// ofStoreAlone reads the parameter source of a list.
func ofStoreAlone(c *call) (bool, error) {
	switch source := c.query.Get("source"); source {
	case "":
		return false, nil
	case sourceStore:
		return true, nil
	default:
		return false, refusal.BadRequest(fmt.Sprintf("source %q: use %s, or leave it out", source, sourceStore))
	}
}

// storedAmong returns the store's objects behind the objects of a list.
func storedAmong(snapshot *cache.Snapshot, objects iter.Seq[*config.Config]) iter.Seq[*config.Config] {
	return func(yield func(*config.Config) bool) {
		for object := range objects {
			if object = snapshot.Stored(object.Key()); object != nil && !yield(object) {
				return
			}
		}
	}
}

// checkSource returns why the store may not get an operation, nil if it may.
func (s *Server) checkSource(op storage.Op) error {
	if err := s.permit(op); err != nil {
		return err
	}
	snapshot := s.cache.Snapshot()
	beside := snapshot.Beside(op.Target())
	if op.Config == nil || op.Condition() == "" || beside == nil || snapshot.Stored(op.Target()) != nil {
		return nil
	}
	if _, err := strconv.ParseInt(op.Condition(), 10, 64); err == nil {
		return nil // it is a version of the store
	}
	return &storage.SourceError{
		Verb: op.Verb, Key: beside.Key(), Source: beside.Source, Place: s.place(beside.Key()),
		Else: "without metadata.resourceVersion an apply makes an object of the store in its place",
	}
}

// replacementAfterDelete says which object of another source takes its place when the store's
// object is deleted; "" for none.
func (s *Server) replacementAfterDelete(snapshot *cache.Snapshot, key config.Key) string {
	beside := snapshot.Beside(key)
	if beside == nil {
		return ""
	}
	becomes := "takes its place"
	if snapshot.Get(key).Source != "" {
		becomes = "stands as before"
	}
	return fmt.Sprintf("the object of the source %s %s", s.originOf(beside), becomes)
}

// originOf returns the source of an object, and its place there if it is known.
func (s *Server) originOf(object *config.Config) string {
	if place := s.place(object.Key()); place != "" {
		return object.Source + ", " + place
	}
	return object.Source
}
