package main

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/cache/rest/client"
	"github.com/portolan-mesh/portolan/cache/rest/record"
)

var recordOutputs = []string{"table", "json", "yaml"}

// readRecords reads the newest records of a query that are wanted, at most limit
// of them (0 is all), up to the first at which it is enough.
func readRecords(ctx context.Context, c *client.Client, q record.Query, limit int, wanted, enough func(record.Record) bool) ([]record.Record, error) {
	records := []record.Record{}
	for {
		page, err := c.Records(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Items {
			if enough(r) {
				return records, nil
			}
			if wanted(r) {
				records = append(records, r)
			}
			if len(records) == limit {
				return records, nil
			}
		}
		if page.Metadata.Continue == "" {
			return records, nil
		}
		if q.Until, err = strconv.ParseInt(page.Metadata.Continue, 10, 64); err != nil {
			return nil, err
		}
	}
}

// pageFor is the size of the pages for so many records.
func pageFor(limit int) int {
	if limit == 0 {
		return record.MaxLimit
	}
	return min(limit, record.MaxLimit)
}

// writeRecords writes records for programs, as the API has them.
func writeRecords(env *environment, output string, records []record.Record) error {
	list := record.NewList(records)
	if output == "json" {
		return writeJSON(env, list)
	}
	text, err := yaml.Marshal(list)
	if err == nil {
		_, err = env.stdout.Write(text)
	}
	return err
}

// recordTable is a table with a line for each record; what it did is in a column
// of its own, and the messages where there are any.
func (e *environment) recordTable(header string, records []record.Record, did func(record.Record) string) error {
	rows := [][]string{{"REV", "WHEN", "WHO", "FROM", header}}
	messages := false
	for _, r := range records {
		messages = messages || r.Message != ""
		when := age(e.now(), r.Time)
		if when != "" {
			when += " ago"
		}
		rows = append(rows, []string{r.Revision, when, plain(r.User), origin(r), did(r)})
	}
	if messages {
		rows[0] = append(rows[0], "MESSAGE")
		for i, r := range records {
			rows[i+1] = append(rows[i+1], plain(r.Message))
		}
	}
	return writeTable(e.stdout, rows)
}

// origin is where a change came from, as far as that is known and not proven: of
// a portolan its command and the local user, of another program its name, and
// the host unless it was the server's own.
func origin(r record.Record) string {
	program, rest, _ := strings.Cut(plain(r.Tool), " ")
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
	return strings.TrimSpace(program + " " + plain(host))
}

// plain is text of others on one line, without what a terminal would act on.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}
