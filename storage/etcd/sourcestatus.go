package etcd

import (
	"fmt"
	"net/url"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/portolan-mesh/portolan/storage/etcd/envelope"
	"github.com/portolan-mesh/portolan/storage/status"
)

const (
	// SourcesPrefix is the tree of the servers' reports about their sources other than
	// the store, by server id, each under a lease of the server. ContentPrefix is the
	// tree of the objects in these sources, by server, source and part, under the same
	// lease.
	SourcesPrefix = StatusPrefix + "source/"
	ContentPrefix = StatusPrefix + "content/"
)

// SourcesKey returns the key of a server's report about its sources.
func SourcesKey(id string) string { return SourcesPrefix + url.PathEscape(id) }

// ContentKey returns the key of a part of the objects of a source on a server.
func ContentKey(id, source string, part int) string {
	return ContentPrefix + ContentPath(id, source, part)
}

// ContentPath returns a ContentKey without its prefix.
func ContentPath(id, source string, part int) string {
	return url.PathEscape(id) + "/" + url.PathEscape(source) + "/" + strconv.Itoa(part)
}

// EncodeSources returns the value of a server's report about its sources.
func EncodeSources(s *status.Sources) ([]byte, error) {
	out := &envelope.Sources{Replica: s.Replica}
	for _, state := range s.States {
		out.Sources = append(out.Sources, &envelope.SourceState{
			Name: state.Name, Complete: state.Complete, Problem: state.Problem, Objects: int64(state.Objects), Digest: state.Digest,
			Differing: state.Differing,
		})
	}
	return envelope.Encode(out)
}

// DecodeSources decodes a server's report about its sources, with a key under
// SourcesPrefix. The error is an ErrForeignKey or an ErrUndecodable.
func DecodeSources(kv *mvccpb.KeyValue) (*status.Sources, error) {
	value := &envelope.Sources{}
	if err := open(kv, value); err != nil {
		return nil, err
	}
	if SourcesKey(value.Replica) != string(kv.Key) {
		return nil, undecodable(kv, fmt.Sprintf("it is the report of another server: %s", value.Replica))
	}
	out := &status.Sources{Replica: value.Replica}
	for _, state := range value.Sources {
		out.States = append(out.States, status.SourceState{
			Name: state.Name, Complete: state.Complete, Problem: state.Problem, Objects: int(state.Objects), Digest: state.Digest,
			Differing: state.Differing,
		})
	}
	return out, nil
}

// EncodeContent returns the value of a part of the objects of a source.
func EncodeContent(c *status.Content) ([]byte, error) {
	out := &envelope.SourceContent{Replica: c.Replica, Source: c.Source, Part: int64(c.Part), Hosts: c.Hosts}
	for _, o := range c.Objects {
		out.Objects, out.Hashes = append(out.Objects, o.ID), append(out.Hashes, o.Hash)
	}
	return envelope.Encode(out)
}

// DecodeContent decodes a part of the objects of a source, with a key under
// ContentPrefix. The error is an ErrForeignKey or an ErrUndecodable.
func DecodeContent(kv *mvccpb.KeyValue) (*status.Content, error) {
	value := &envelope.SourceContent{}
	if err := open(kv, value); err != nil {
		return nil, err
	}
	part, n := int(value.Part), len(value.Objects)
	if ContentKey(value.Replica, value.Source, part) != string(kv.Key) || part < 0 || part >= status.UseParts {
		return nil, undecodable(kv, fmt.Sprintf("it is part %d of %s on server %s", part, value.Source, value.Replica))
	}
	if len(value.Hashes) != n {
		return nil, undecodable(kv, fmt.Sprintf("it has %d objects and %d hashes", n, len(value.Hashes)))
	}
	out := &status.Content{Replica: value.Replica, Source: value.Source, Part: part, Hosts: value.Hosts}
	for i, id := range value.Objects {
		out.Objects = append(out.Objects, status.ContentObject{ID: id, Hash: value.Hashes[i]})
	}
	return out, nil
}
