package cluster_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	for want, m := range map[cluster.Status]cluster.Member{
		cluster.Leader:      {ID: 1, Name: "a", Answer: &cluster.Answer{Leader: 1}},
		cluster.Voter:       {ID: 2, Name: "a", Answer: &cluster.Answer{Leader: 1}},
		cluster.Learner:     {ID: 2, Name: "a", Learner: true, Answer: &cluster.Answer{Leader: 1}},
		cluster.Waiting:     {ID: 2, Name: "a", Answer: &cluster.Answer{}},
		cluster.Unstarted:   {ID: 2, Learner: true},
		cluster.Unreachable: {ID: 2, Name: "a", Err: errors.New("away")},
		cluster.Stranger:    {ID: 2, Name: "a", Err: &cluster.StrangerError{Name: "b"}},
	} {
		if got := m.Status(); got != want {
			t.Errorf("%+v is %s, want %s", m, got, want)
		}
	}
	v := cluster.Membership{}
	if len(cluster.Statuses) != 7 || v.Leader() != nil || v.Quorum() != 1 {
		t.Error("an empty view")
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	v := cluster.Membership{Members: []cluster.Member{
		{ID: 0xabc, Name: "cp-1", PeerURLs: []string{"https://10.0.0.1:2380"}},
		{ID: 0xdef, PeerURLs: []string{"https://10.0.0.2:2380"}},
	}}
	for name, want := range map[string]uint64{
		"cp-1": 0xabc, "abc": 0xabc, "https://10.0.0.1:2380": 0xabc,
		"def": 0xdef, "DEF": 0xdef, "https://10.0.0.2:2380/": 0xdef,
	} {
		if m, err := v.Find(name); err != nil || m.ID != want {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	for _, name := range []string{"", "cp-2", "ab"} {
		if _, err := v.Find(name); !errors.Is(err, cluster.ErrUnknown) || !strings.Contains(err.Error(), "cp-1, def") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://10.0.0.1:2380":        "",
		"https://cp-1.example.com:443": "",
		"https://[fd00::1]:2380":       "",
		"http://127.0.0.1:2380":        "",
		"http://[::1]:2380":            "",
		"http://localhost:2380":        "",
		"http://10.0.0.1:2380":         "needs TLS",
		"http://cp-1:2380":             "needs TLS",
		"https://0.0.0.0:2380":         "nobody can call",
		"https://[::]:2380":            "nobody can call",
		"https://10.0.0.1":             "not a URL",
		"10.0.0.1:2380":                "not a URL",
		"":                             "not a URL",
		"unix:///tmp/s":                "not a URL",
		"https://10.0.0.1:2380/x":      "more than",
		"https://u:p@10.0.0.1:2380":    "more than",
	} {
		err := cluster.CheckURL(text)
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, fine := range map[string]bool{
		"cp-1": true, "a": true, "Server_1.rack2": true,
		"": false, "-a": false, "a=b": false, "a,b": false, "a b": false, strings.Repeat("x", 64): false,
	} {
		if err := cluster.CheckName(name); (err == nil) != fine {
			t.Errorf("%q: %v", name, err)
		}
	}
}
