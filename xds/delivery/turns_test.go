package delivery_test

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/delivery"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// turn is the Turn of a type: words in the content say what is sent. "#2" is the second turn, and
// "both" sends the old and the new content for now.
func turn(has, wants *resource.Resource) (out delivery.Turn) {
	is, will := strings.TrimSpace(content(has)), strings.TrimSpace(content(wants))
	for _, word := range strings.Fields(will) {
		if n, ok := strings.CutPrefix(word, "#"); ok {
			out.Number, _ = strconv.Atoi(n)
		}
	}
	if strings.Contains(will, "both") {
		if strings.Contains(is, will) {
			return delivery.Turn{Number: 9}
		}
		out.Interim, _ = resource.New(wants.Name, wrapperspb.String(is+" and "+will))
	}
	return out
}

// TestChangesInTurns: resources that change at the same time go one turn after another, each once
// the client has acknowledged the turn before. One that goes in another form follows as itself.
func TestChangesInTurns(t *testing.T) {
	t.Parallel()
	inVariants(t, func(t *testing.T, p *play) {
		secret := func(what, want string) {
			t.Helper()
			if got := strings.TrimSpace(content(p.last[sds].Resources[0])); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		p.settled("SDS a: 1", "SDS b: 1", "SDS c: 1")
		p.offer("SDS a: 2 #2", "SDS b: 2 #1", "SDS c: 2 #2")
		p.sends("the first turn", "SDS +b")
		p.sends("nothing before the ACK")
		p.ack(sds)
		p.sends("the second turn", "SDS +a +c")
		p.ack(sds)
		p.sends("that was all")

		p.offer("SDS a: 3 #2", "SDS b: 3 both #1", "SDS c: 2 #2")
		p.sends("another form for now", "SDS +b")
		secret("for now", "2 #1 and 3 both #1")
		p.ack(sds)
		p.sends("the others", "SDS +a")
		p.ack(sds)
		p.sends("the last turn", "SDS +b")
		secret("at last", "3 both #1")
		p.ack(sds)

		p.offer("SDS a: 3 #2", "SDS b: 4 both #1", "SDS c: 2 #2")
		p.sends("a change alone goes at once", "SDS +b")
		secret("alone", "4 both #1")
		p.ack(sds)

		p.offer("SDS a: 5 #2", "SDS b: 5 both #1", "SDS c: 2 #2")
		p.sends("the first turn", "SDS +b")
		p.nack(sds)
		p.sends("what is refused holds nothing back", "SDS +a +b")
		secret("the first", "5 #2")
		p.nack(sds)
		p.sends("a search takes no turns", "SDS +a")
	})
}
