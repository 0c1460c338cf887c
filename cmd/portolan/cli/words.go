package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/text"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// NodeName returns the name in a node id, type~address~name.namespace~domain.
func NodeName(node string) string {
	if node == "" {
		return "server" // the server itself could not build a resource
	}
	if parts := strings.Split(node, "~"); len(parts) == 4 {
		return parts[2]
	}
	return node
}

// ServerName returns the part of a server's id that people know.
func ServerName(id string) string {
	name, _, _ := strings.Cut(id, "/")
	return name
}

// Quoted quotes a proxy's message, on one line.
func Quoted(words string) string { return strconv.Quote(strings.TrimSpace(words)) }

func ProxyCount(n int) string {
	if n == 1 {
		return "1 proxy"
	}
	return fmt.Sprintf("%d proxies", n)
}

// Offline returns rows for the proxies that are connected to no server. There are count of
// them; gone holds some, the last seen first. If all is set, it lists all of gone. Else it
// lists the recent ones, up to maxOffline, and counts the others.
func Offline(gone []progress.Place, count int, now time.Time, all bool) (rows [][]string) {
	for _, g := range gone {
		if !all && (len(rows) == MaxOffline || now.Sub(g.Seen) > offlineLong) {
			break
		}
		rows = append(rows, []string{"  offline", NodeName(g.Node), "last seen " + Age(now, g.Seen) + " ago"})
	}
	const see = "see portolan proxy status --all"
	switch rest := count - len(rows); {
	case rest <= 0:
	case len(rows) < len(gone) && now.Sub(gone[len(rows)].Seen) > offlineLong: // and so were all after it
		rows = append(rows, []string{"  offline", ProxyCount(rest), "for more than " + Age(now, now.Add(-offlineLong)) + ": " + see})
	default:
		rows = append(rows, []string{"  offline", ProxyCount(rest) + " more", see})
	}
	return rows
}

// At most maxOffline offline proxies are listed by name, only those seen within offlineLong.
const (
	offlineLong = time.Hour
	MaxOffline  = 10
)

// Plain is text.Plain.
func Plain(s string) string { return text.Plain(s) }

// CountOf formats a number of things.
func CountOf(n int, name string) string {
	if n != 1 {
		name += "s"
	}
	return fmt.Sprintf("%d %s", n, name)
}
