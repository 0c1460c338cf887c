package integration

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// scrapes is what Prometheus would have of servers, a scrape each minute. The servers are
// called by their instance.
type scrapes struct {
	t    *testing.T
	seen []map[string]string // the value of each series
}

// sample matches a line of /metrics.
var sample = regexp.MustCompile(`(?m)^(portolan_[a-z0-9_]+)(\{.*\})? (\S+)$`)

// take scrapes a server. A server that does not answer is down.
func (s *scrapes) take(instance string, from *server) {
	s.t.Helper()
	found := map[string]string{}
	var text []byte
	var err error
	eventually(s.t, "the server has handled all changes", func() error { // what lasts for a moment lasts for minutes here
		if text, err = from.get("/metrics", nil); err == nil && !strings.Contains(string(text), "\nportolan_cache_handled_lag 0\n") {
			return errors.New("it has not")
		}
		return nil
	})
	if err != nil {
		found[at(instance, `up{job="portolan"}`)] = "0"
		s.seen = append(s.seen, found)
		return
	}
	found[at(instance, `up{job="portolan"}`)] = "1"
	for _, m := range sample.FindAllStringSubmatch(string(text), -1) {
		// As Prometheus does with a label that it sets itself.
		found[at(instance, m[1]+strings.Replace(m[2], `job="`, `exported_job="`, 1))] = m[3]
	}
	if len(found) < 30 {
		s.t.Fatalf("%d samples: %s", len(found), text)
	}
	s.seen = append(s.seen, found)
}

// lasting is for how many minutes the last scrape is as it was: longer than any rule waits.
const lasting = 8

// test returns the test of the rules over the scrapes.
func (s *scrapes) test(name string) ruleTest {
	names := map[string]bool{}
	for _, one := range s.seen {
		for series := range one {
			names[series] = true
		}
	}
	test := ruleTest{Name: name, Interval: "1m"}
	for _, series := range slices.Sorted(maps.Keys(names)) {
		var values []string
		for _, one := range s.seen {
			value := one[series]
			if value == "" {
				value = "_"
			}
			values = append(values, value)
		}
		for range lasting {
			values = append(values, values[len(s.seen)-1])
		}
		test.Series = append(test.Series, ruleSeries{series, strings.Join(values, " ")})
	}
	return test
}

// expect has these alerts fire, each once for each series with these labels, and no others: at
// the first scrape none does. except are alerts that are not looked at.
func (s *scrapes) expect(want map[string][]string, except ...string) {
	s.t.Helper()
	test := s.test(s.t.Name())
	end := fmt.Sprintf("%dm", len(s.seen)+lasting-1)
	for _, rule := range readAlertRules(s.t) {
		if slices.Contains(except, rule.Alert) {
			continue
		}
		test.Alerts = append(test.Alerts, alertTest{At: "0m", Alert: rule.Alert})
		last := alertTest{At: end, Alert: rule.Alert}
		for _, labels := range want[rule.Alert] {
			last.Expected = append(last.Expected, rule.firing(labelsOf(labels)))
		}
		test.Alerts = append(test.Alerts, last)
	}
	for name := range want {
		if !slices.ContainsFunc(test.Alerts, func(a alertTest) bool { return a.Alert == name }) {
			s.t.Errorf("there is no rule %s", name)
		}
	}
	testRules(s.t, test)
}
