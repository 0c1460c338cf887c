package objects

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/discovery/identity/journal"
)

var recordOutputs = []string{"table", "json", "yaml"}

// recordFilter says which records of a query to read.
type recordFilter struct {
	limit int // how many of the newest; 0 means all
	// by is the user who made the change, since its maximal age; empty and 0 mean any.
	by    string
	since time.Time
	// refused leaves out all but refused attempts.
	refused bool
}

// wasRefused says whether a record is about attempts that were refused.
func wasRefused(r record.Record) bool {
	return len(r.Changes) == 1 && r.Changes[0].Kind == journal.RefusalKind
}

// fetch returns the records of a query, newest first, and whether there are more.
func (want recordFilter) fetch(ctx context.Context, c *client.Client, q record.Query) (records []record.Record, more bool, err error) {
	q.Limit = record.MaxLimit
	if want.limit > 0 && want.by == "" && !want.refused {
		q.Limit = min(want.limit+1, record.MaxLimit) // one more, to know whether there are more
	}
	records = []record.Record{}
	for {
		page, err := c.Records(ctx, q)
		if err != nil {
			return nil, false, err
		}
		for _, r := range page.Items {
			switch {
			case r.Time.Before(want.since):
				return records, false, nil
			case want.by != "" && r.User != want.by, want.refused && !wasRefused(r):
			case want.limit > 0 && len(records) == want.limit:
				return records, true, nil
			default:
				records = append(records, r)
			}
		}
		if page.Metadata.Continue == "" {
			return records, false, nil
		}
		if q.Until, err = strconv.ParseInt(page.Metadata.Continue, 10, 64); err != nil {
			return nil, false, fmt.Errorf("metadata.continue of %s at %s: %w", record.Path, c.Server(), err)
		}
	}
}

// writeRecords writes records for programs, in the form of the API.
func writeRecords(env *environment, output string, records []record.Record) error {
	return cli.WriteDocument(env.Stdout, output, record.NewList(records))
}

// recordTable prints a table with a line for each record. did fills the column header;
// messages get a column if there are any. It prints a hint if more is set.
func (e *environment) recordTable(header string, records []record.Record, more bool, did func(record.Record) string) error {
	rows := [][]string{{"REV", "WHEN", "WHO", "FROM", header}}
	messages := false
	for _, r := range records {
		messages = messages || r.Message != ""
		when := cli.Age(e.Now(), r.Time)
		if when != "" {
			when += " ago"
		}
		rows = append(rows, []string{r.Revision, when, cmp.Or(cli.Plain(r.User), "-"), origin(r), did(r)})
	}
	if messages {
		rows[0] = append(rows[0], "MESSAGE")
		for i, r := range records {
			rows[i+1] = append(rows[i+1], cli.Plain(r.Message))
		}
	}
	err := cli.WriteTable(e.Stdout, rows)
	if more {
		fmt.Fprintf(e.Stderr, "These are the newest %d; --limit 0 shows all.\n", len(records))
	}
	return err
}

// origin describes the source of a change as claimed, without proof: for the portolan command
// line its command and the local user, for another program its name. The host follows unless
// it was the server's own.
func origin(r record.Record) string {
	program, rest, _ := strings.Cut(cli.Plain(r.Tool), " ")
	if strings.HasPrefix(program, "portolan/") && rest != "" {
		program = rest
	}
	host, _, err := net.SplitHostPort(r.Address)
	if err != nil {
		host = r.Address
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		host = ""
	}
	return strings.TrimSpace(program + " " + cli.Plain(host))
}
