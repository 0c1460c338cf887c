package propagation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cache/side"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
)

// The reasons of conditions.
const (
	reasonValid        = "Valid"
	reasonAcknowledged = "Acknowledged"
	reasonNotConcerned = "NotConcerned"
	reasonWaiting      = "Waiting"
	reasonRefused      = "Refused"
)

// say is what there is to be said of an object; settled is that nothing will follow
// until something changes.
func say(object *config.Config, said *status.Report, facts *side.Facts, now time.Time) (report *status.Report, settled bool) {
	revision, err := strconv.ParseInt(object.ResourceVersion, 10, 64)
	if err != nil {
		return said, true // of no store that has revisions
	}
	report = &status.Report{Key: object.Key(), UID: object.UID, Object: revision, Generation: object.Generation}
	count, behind := tally(facts, revision)
	refusals := refusalsOf(facts, report.Key.Path(), revision)
	if len(refusals) > 0 && count.Rejected == 0 {
		count.Rejected = 1 // it was refused before, or on its behalf
		count.Accepted = max(0, count.Accepted-1)
	}
	report.Conditions = []status.Condition{
		{Type: status.Accepted, Status: status.True, Reason: reasonValid, Message: fmt.Sprintf("revision %d is valid and was seen by the servers", revision)},
		programmed(count, behind),
	}
	if len(refusals) > 0 {
		report.Conditions = append(report.Conditions, status.Condition{
			Type: status.Rejected, Status: status.True, Reason: reasonRefused, Message: wordsOf(refusals),
		})
	}
	date(report, said, now)
	return report, behind == 0 && count.Waiting == 0 && count.Rejected == 0
}

// tally counts how the proxies of all servers took the change of a revision, and
// how many servers have not published it.
func tally(facts *side.Facts, revision int64) (count status.Count, behind int) {
	for replica := range facts.Replicas.Values() {
		c, ok := replica.Took(revision)
		if !ok {
			behind++
			continue
		}
		count = count.Plus(c)
	}
	if facts.Replicas.Len() == 0 {
		behind = 1 // the one that leads has not reported yet
	}
	return count, behind
}

// programmed is the condition of counts.
func programmed(c status.Count, behind int) status.Condition {
	out := status.Condition{Type: status.Programmed, Status: status.False}
	switch {
	case c.Rejected > 0:
		out.Reason = reasonRefused
	case c.Waiting > 0 || behind > 0:
		out.Reason = reasonWaiting
	case c.Concerned() == 0:
		out.Status, out.Reason = status.True, reasonNotConcerned
		out.Message = fmt.Sprintf("none of the %d proxies that were connected is concerned", c.Proxies())
		return out
	default:
		out.Status, out.Reason = status.True, reasonAcknowledged
	}
	out.Message = fmt.Sprintf("%d of %d proxies concerned have acknowledged it", c.Accepted, c.Concerned())
	if c.Waiting > 0 {
		out.Message += fmt.Sprintf(", waiting for %d", c.Waiting)
	}
	if c.Rejected > 0 {
		out.Message += fmt.Sprintf(", refused by %d", c.Rejected)
	}
	if behind > 0 {
		out.Message += fmt.Sprintf(", servers that have not published it yet: %d", behind)
	}
	return out
}

// refusalsOf are the troubles that are about an object: those whose words name it,
// and, of those that name none, those of a response that carried its last change.
func refusalsOf(facts *side.Facts, path string, revision int64) []status.Trouble {
	var out []status.Trouble
	for replica := range facts.Replicas.Values() {
		for _, t := range replica.Troubles {
			named := slices.Contains(t.Objects, path)
			carried := len(t.Objects) == 0 && t.Revision < revision && revision <= t.RejectedRevision
			if count, ok := replica.Took(revision); t.Rejected && (named || carried && ok && count.Rejected > 0) {
				out = append(out, t)
			}
		}
	}
	return out
}

// maxQuoted bounds the refusals that a condition quotes.
const maxQuoted = 3

// wordsOf are refusals in the words of proxies.
func wordsOf(refusals []status.Trouble) string {
	var parts []string
	for _, t := range refusals[:min(len(refusals), maxQuoted)] {
		parts = append(parts, fmt.Sprintf("%s %s: %s", t.Node, t.Type, t.Message))
	}
	if more := len(refusals) - maxQuoted; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// date gives conditions the time since when they are as they are.
func date(report, said *status.Report, now time.Time) {
	for i := range report.Conditions {
		c := &report.Conditions[i]
		c.Since = now.UTC()
		if !said.Of(report.UID) {
			continue
		}
		for _, before := range said.Conditions {
			if before.Type == c.Type && before.Status == c.Status {
				c.Since = before.Since
			}
		}
	}
}

// sameWords says whether a report says what was said.
func sameWords(report, said *status.Report) bool {
	return said.Of(report.UID) && said.Object == report.Object && said.Generation == report.Generation &&
		slices.Equal(report.Conditions, said.Conditions)
}

func refuses(report *status.Report) bool {
	return slices.ContainsFunc(report.Conditions, func(c status.Condition) bool { return c.Type == status.Rejected })
}
