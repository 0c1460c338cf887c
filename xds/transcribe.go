package xds

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/progress"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/transcript"
)

// Transcripts returns what was said on the streams of clients.
func (s *DiscoveryServer) Transcripts() *transcript.Book { return s.transcripts }

var errDisconnected = status.Error(codes.Unavailable, "somebody who may administer the mesh has ended this stream: connect anew")

// Disconnect ends the streams of a client, by its node id, and the connections that they are on, so
// that it connects anew. It returns how many streams it ended.
func (s *DiscoveryServer) Disconnect(node string) int {
	ended := 0
	for _, c := range s.all() {
		if c.identified.Load() && c.note.Node() == node {
			c.admitted.HangUp(errDisconnected)
			ended++
		}
	}
	return ended
}

// transcribe notes a request, and how long the client took if it answers a response.
func (c *Connection) transcribe(t *typeState, m *message, answer protocol.Answer, took time.Duration) {
	s := c.transcript.Load()
	switch {
	case answer.ACK != nil:
		s.Acknowledged(t.Name, answer.ACK.Nonce, took)
	case answer.NACK != nil:
		message := strings.ToValidUTF8(progress.Shorten(answer.NACK.Message, transcript.MaxMessage), "")
		if t.url == resource.SecretType {
			message = "its words may quote the secret, and are not kept"
		}
		s.Refused(t.Name, answer.NACK.Nonce, strings.Clone(message), took)
	}
	added, removed := m.request.Subscribe.Len(), m.request.Unsubscribe.Len()
	if answer.First {
		added += m.request.Names.Len()
	}
	if answer.First || added+removed > 0 {
		s.Requested(t.Name, added, removed)
	}
}

// reasonOf says in words why a stream has ended.
func reasonOf(err error) string {
	if of, ok := status.FromError(err); ok && err != nil && !errors.Is(err, context.Canceled) {
		return progress.Shorten(of.Message(), transcript.MaxMessage)
	}
	return "the client ended it, or is gone"
}
