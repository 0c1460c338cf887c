package progress

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cache/beside"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// The reasons of conditions.
const (
	reasonAcknowledged = "Acknowledged"
	reasonNotConcerned = "NotConcerned"
	reasonNoProxies    = "NoProxies"
	reasonWaiting      = "Waiting"
	reasonRefused      = "Refused"
	reasonNotBuilt     = "NotBuilt"
)

// evidence is what makeReport goes by, besides the object.
type evidence struct {
	facts    *statuses.Reports
	verdicts []verdict.Verdict
	// addresses are those at which gateways serve an Ingress.
	addresses []string
	// used says that a resource which a connected proxy should have is made of the object,
	// or was until a moment ago.
	used bool
}

// settled says that the report stays true until the configuration or a proxy changes.
// stored is the present report.
func makeReport(object *config.Config, stored *status.Report, e evidence, now time.Time) (report *status.Report, settled bool) {
	facts := e.facts
	revision, seen := int64(0), status.SeenIn(object.Source)
	report = &status.Report{Key: object.Key(), UID: object.UID, Generation: object.Generation, Addresses: e.addresses}
	var count status.Count
	behind, did := 0, "proxies concerned have acknowledged it"
	if object.Source != "" {
		report.Version = object.ResourceVersion
		count, behind = tally(facts, func(r *status.Replica) (status.Count, bool) { return r.Now, beside.Has(facts, r.ID, object) })
		// A rejection counts only where it names the object.
		count.Accepted, count.Rejected = count.Accepted+count.Rejected, 0
		did = "connected proxies have all that is made of it"
	} else {
		revision, _ = object.Revision()
		report.Object, seen = revision, status.SeenCondition(revision)
		count, behind = tally(facts, func(r *status.Replica) (status.Count, bool) { return r.Responses(revision) })
	}
	refusals, notBuilt, others := rejectionsOf(facts, report.Key.Path(), revision)
	settled = behind == 0 && count.Waiting == 0 && count.Rejected == 0 && len(refusals) == 0
	others = min(others, count.Rejected)
	count.Rejected, count.Accepted = count.Rejected-others, count.Accepted+others
	if len(refusals) > notBuilt && count.Rejected == 0 {
		count.Rejected = 1 // a proxy rejects the object, and its server counted it before that as something else
		count.Accepted = max(0, count.Accepted-1)
	}
	condition, words := programmed(count, behind, e.used, did), quote(refusals)
	if notBuilt > 0 {
		condition.Status, condition.Reason = status.False, reasonNotBuilt
	}
	report.Conditions = []status.Condition{seen, condition}
	if len(refusals) > 0 {
		reason := reasonRefused
		if notBuilt == len(refusals) {
			reason = reasonNotBuilt
		}
		report.Conditions = append(report.Conditions, status.Condition{Type: status.Rejected, Status: status.True, Reason: reason, Message: words})
	}
	report.Conditions = slices.Concat(report.Conditions, ofVerdicts(e.verdicts), underWay(condition, words))
	carryOver(report, stored, now)
	return report, settled
}

// underWay makes the conditions that tools which read kstatus go by: Stalled where an
// object is refused, Reconciling where proxies have yet to take it. At most one holds.
func underWay(programmed status.Condition, refusals string) []status.Condition {
	out := status.Condition{Type: status.Stalled, Status: status.True, Reason: programmed.Reason, Message: programmed.Message}
	switch {
	case programmed.Status != status.False:
		return nil
	case programmed.Reason == reasonWaiting:
		out.Type = status.Reconciling
	case refusals != "":
		out.Message = refusals
	}
	return []status.Condition{out}
}

// ofVerdicts makes the conditions that tell of verdicts: one for each type of condition
// that a verdict belongs to, with the worst verdict's code as its reason.
func ofVerdicts(verdicts []verdict.Verdict) []status.Condition {
	var out []status.Condition
	for _, typ := range verdictConditions {
		var texts []string
		c := status.Condition{Type: typ, Status: status.True}
		if typ == status.ResolvedRefs {
			c.Status = status.False
		}
		for _, v := range verdicts {
			if v.Code.Kind().Condition != typ {
				continue
			}
			if c.Reason == "" {
				c.Reason = string(v.Code)
			}
			texts = append(texts, v.String())
		}
		if len(texts) > 0 {
			c.Message = quoteSome(texts)
			out = append(out, c)
		}
	}
	return out
}

// verdictConditions are the types of the conditions of verdicts, in their order.
var verdictConditions = []string{status.ResolvedRefs, status.Conflicted, status.PartlyServed}

func isOfVerdicts(c status.Condition) bool { return slices.Contains(verdictConditions, c.Type) }

// tally adds up the counts of all servers. countOf returns the count of a server, false if
// that has yet to publish the change; behind is the number of such servers.
func tally(facts *statuses.Reports, countOf func(*status.Replica) (status.Count, bool)) (count status.Count, behind int) {
	for replica := range facts.Replicas.Values() {
		if c, ok := countOf(replica); ok {
			count = count.Plus(c)
		} else {
			behind++
		}
	}
	if facts.Replicas.Len() == 0 {
		behind = 1 // the server that runs this has not reported yet
	}
	return count, behind
}

// did says what the proxies did that are counted as Accepted.
func programmed(c status.Count, behind int, used bool, did string) status.Condition {
	out := status.Condition{Type: status.Programmed, Status: status.False}
	switch {
	case c.Rejected > 0:
		out.Reason = reasonRefused
	case c.Waiting > 0 || behind > 0:
		out.Reason = reasonWaiting
	case !used:
		out.Status, out.Reason, out.Message = status.Unknown, reasonNoProxies, "no connected proxy got anything from it"
		return out
	case c.Concerned() == 0:
		out.Status, out.Reason = status.True, reasonNotConcerned
		out.Message = fmt.Sprintf("none of the %d proxies that were connected is concerned", c.Proxies())
		return out
	default:
		out.Status, out.Reason = status.True, reasonAcknowledged
	}
	out.Message = fmt.Sprintf("%d of %d %s", c.Accepted, c.Concerned(), did)
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

// rejectionsOf returns the rejections that concern an object: those that name it, and those
// that name no object if their response carried its last change. The first notBuilt of them
// are of resources that servers could not build. others counts the proxies that reject
// other objects of the same revision, but not this one.
func rejectionsOf(facts *statuses.Reports, path string, revision int64) (all []status.Problem, notBuilt, others int) {
	concerned := map[string]bool{} // by proxy that rejects the revision: whether it may reject this object
	for replica := range facts.Replicas.Values() {
		count, published := replica.Responses(revision)
		for _, t := range replica.Problems {
			if !t.Rejected {
				continue
			}
			named, unknown := slices.Contains(t.Objects, path), len(t.Objects) == 0
			carried := t.Revision < revision && revision <= t.RejectedRevision
			if carried && t.Node != "" {
				concerned[t.Node] = concerned[t.Node] || named || unknown
			}
			switch {
			case !named && !(unknown && carried && published && count.Rejected > 0):
			case t.Node != "":
				all = append(all, t)
			case !slices.ContainsFunc(all[:notBuilt], func(o status.Problem) bool { return o.Type == t.Type && o.Message == t.Message }):
				all = slices.Insert(all, notBuilt, t)
				notBuilt++
			}
		}
	}
	for _, mayBe := range concerned {
		if !mayBe {
			others++
		}
	}
	return all, notBuilt, others
}

// maxQuoted bounds the rejections and the verdicts that a condition quotes.
const maxQuoted = 3

// quote quotes the messages of proxies and servers.
func quote(refusals []status.Problem) string {
	var texts []string
	for _, t := range refusals {
		if t.Node == "" {
			texts = append(texts, fmt.Sprintf("not built, proxies keep its last good form: %s %s (%s)", t.Type, t.Message, verdict.NotBuilt))
		} else {
			texts = append(texts, fmt.Sprintf("%s %s: %s", t.Node, strings.TrimSpace(t.Type+" "+t.Resource), t.Message))
		}
	}
	return quoteSome(texts)
}

// quoteSome joins the first maxQuoted texts, and says how many more there are.
func quoteSome(texts []string) string {
	out := strings.Join(texts[:min(len(texts), maxQuoted)], "; ")
	if more := len(texts) - maxQuoted; more > 0 {
		out += fmt.Sprintf("; and %d more", more)
	}
	return out
}

// carryOver takes Since from the stored report for each condition that has the same status
// there. For Programmed, unless it is False, it takes the reason and message too: they
// change with the counts as proxies come and go, which is no reason to write.
func carryOver(report, stored *status.Report, now time.Time) {
	for i := range report.Conditions {
		c := &report.Conditions[i]
		c.Since = now.UTC()
		before := conditionOf(stored, c.Type)
		switch {
		case !stored.Of(report.UID) || before.Status != c.Status:
		case c.Type != status.Programmed:
			c.Since = before.Since
		case sameWrite(report, stored): // a new write makes it Unknown, and it begins anew
			c.Since = before.Since
			if c.Status != status.False {
				c.Reason, c.Message = before.Reason, before.Message
			}
		}
	}
}

// sameWrite says whether two reports are about the same write of an object.
func sameWrite(report, stored *status.Report) bool {
	return stored.Of(report.UID) && stored.Object == report.Object && stored.Version == report.Version
}

func sameContent(report, stored *status.Report) bool {
	return sameWrite(report, stored) && stored.Generation == report.Generation && slices.Equal(report.Conditions, stored.Conditions) &&
		slices.Equal(report.Addresses, stored.Addresses)
}

// isJudgedAnew says whether a report differs from the stored one in its verdicts and addresses alone.
func isJudgedAnew(report, stored *status.Report) bool {
	others := func(r *status.Report) []status.Condition {
		return slices.DeleteFunc(slices.Clone(r.Conditions), isOfVerdicts)
	}
	return sameWrite(report, stored) && slices.Equal(others(report), others(stored))
}

// programmedBefore returns the condition Programmed of a stored report that is about the
// same write of an object; the zero Condition for none.
func programmedBefore(stored *status.Report, object *config.Config) status.Condition {
	if !stored.About(object) {
		return status.Condition{}
	}
	return conditionOf(stored, status.Programmed)
}

// conditionOf returns the zero Condition for none.
func conditionOf(report *status.Report, typ string) status.Condition {
	if report != nil {
		for _, c := range report.Conditions {
			if c.Type == typ {
				return c
			}
		}
	}
	return status.Condition{}
}
