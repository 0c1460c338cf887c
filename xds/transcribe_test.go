package xds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/transcript"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// said returns what the log of the only client has of a type, as words.
func said(s *xdstest.Server, node, of string) string {
	var out []string
	for _, e := range s.XDS.Transcripts().Find(node).After(time.Time{}) {
		if e.Type != of {
			continue
		}
		text := string(e.Event)
		switch e.Event {
		case transcript.Sent:
			text += fmt.Sprintf(" %d of %t", e.Resources, e.Bytes > 0 && e.Nonce != "")
		case transcript.Refused:
			text += " " + e.Message
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// TestTranscript: the server knows what it told a client and what the client said, also when the
// client is gone, and counts what its stream costs.
func TestTranscript(t *testing.T) {
	t.Parallel()
	variants(t, func(t *testing.T, v protocol.Variant) {
		s := xdstest.NewServer(t, catalogue.Types())
		s.Apply(service("web", 9080, "10.1.0.1"))
		c := xdstest.Dial(t, s.Address, xdstest.ClientOptions{Node: node("10.0.0.1"), Variant: v, Manual: true})
		c.Subscribe(xdstest.ClusterType)
		c.Nack(c.AwaitAnswer(xdstest.ClusterType, 0), "no such thing")
		xdstest.Eventually(t, "the client", func() bool { return len(s.XDS.Clients()) == 1 })
		id := s.XDS.Clients()[0].ID
		xdstest.Eventually(t, "the refusal", func() bool { return strings.Contains(said(s, id, "CDS"), "refused no such thing") })
		if got := said(s, id, "CDS"); !strings.HasPrefix(got, "sent ") && !strings.HasPrefix(got, "requested, sent ") {
			t.Errorf("it begins with %s", got)
		}
		traffic := s.XDS.Proxies()[0].Traffic
		if traffic.Refusals != 1 || traffic.Responses < 1 || traffic.Bytes == 0 || traffic.Resources == 0 || traffic.MeanTook <= 0 {
			t.Errorf("%+v", traffic)
		}
		if n := s.XDS.Disconnect(id); n != 1 {
			t.Errorf("%d streams ended", n)
		}
		if err := c.AwaitEnd(); status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ended with %v", err)
		}
		xdstest.Eventually(t, "the end", func() bool { return slices.Contains(s.XDS.Transcripts().Gone(), id) })
		all := s.XDS.Transcripts().Find(id).After(time.Time{})
		if last := all[len(all)-1]; last.Event != transcript.Ended || !strings.Contains(last.Message, "somebody who may administer the mesh has ended this stream") {
			t.Errorf("the last entry is %+v", last)
		}
		if n := s.XDS.Disconnect(id); n != 0 {
			t.Errorf("%d streams of a client that is gone ended", n)
		}
	})
}
