package rest

import (
	"fmt"
	"net/http"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// sideMemory bounds the bytes of the events that watches of the side kinds are sending.
const sideMemory = 8 << 20

// addSide makes the server of the kinds beside the others. They are served at the paths of this
// server and by the same means: only the store and the cache differ.
func (s *Server) addSide(o Options) (err error) {
	s.lasting = o.LastingNamespaces
	if o.Side == nil {
		return nil
	}
	s.side, err = New(Options{
		Store: o.Side.Store, Cache: o.Side.Cache, Authenticator: o.Authenticator, Authorizer: o.Authorizer, OnRefusal: o.OnRefusal, Socket: o.Socket,
		Hosts: o.Hosts, Certifies: o.Certifies, MaxWatches: o.MaxWatches, WatchMemory: sideMemory, BookmarkInterval: o.BookmarkInterval, Logger: o.Logger,
	})
	if err == nil {
		s.side.main, s.side.id, s.side.metrics, s.side.budget = s, s.id, s.metrics, s.budget
	}
	return err
}

// serverOf returns the server whose store has the kind that a path names: this one, unless
// the one beside it has the kind.
func (s *Server) serverOf(r *http.Request) *Server {
	if s.side != nil {
		if kind, _ := s.side.schemas.At(r.PathValue("group"), r.PathValue("version"), r.PathValue("plural")); kind != nil {
			return s.side
		}
	}
	return s
}

// kinds returns the kinds of all paths.
func (s *Server) kinds() []*schema.Schema {
	if s.side == nil {
		return s.schemas.All()
	}
	return slices.Concat(s.schemas.All(), s.side.schemas.All())
}

// checkRoom refuses to make objects of a kind that has as many as there may be. Several
// servers may make a few more.
func (s *Server) checkRoom(ops ...storage.Op) error {
	snapshot, counts := s.cache.Snapshot(), map[*schema.Schema]int{}
	for _, op := range ops {
		kind := s.schemas.Kind(op.Target().Kind)
		if kind == nil || kind.Most == 0 || op.Config == nil || op.Verb == storage.Update || snapshot.Stored(op.Target()) != nil {
			continue
		}
		if _, counted := counts[kind]; !counted {
			for range snapshot.List(kind.GroupVersionKind, "") {
				counts[kind]++
			}
		}
		if counts[kind]++; counts[kind] > kind.Most {
			return refusal.Forbidden(fmt.Sprintf("there are %d %s, as many as this server keeps: delete those that nobody needs", kind.Most, kind.Plural))
		}
	}
	return nil
}

// withPhase returns a namespace with the status that all have.
func withPhase(object *config.Config) *config.Config {
	out := *object
	out.Status = &structpb.Struct{Fields: map[string]*structpb.Value{"phase": structpb.NewStringValue("Active")}}
	return &out
}
