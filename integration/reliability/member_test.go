package reliability_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/portolan-mesh/portolan/integration/processtest"
)

// memberVariable is an environment variable that makes the process a member of etcd.
const memberVariable = "PORTOLAN_RELIABILITY_MEMBER"

// memberConfig is the configuration of a member's process.
type memberConfig struct {
	Name, Dir            string
	Client, Peer         string // host:port to listen on
	AdvertisedPeer       string // host:port of the link to its peer address
	InitialCluster       string
	JoinsExistingCluster bool
}

// runMember is the main function of a member's process: an etcd with only the configuration to
// be one of three.
func runMember(document string) int {
	var o memberConfig
	if err := json.Unmarshal([]byte(document), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c := embed.NewConfig()
	c.Name, c.Dir = o.Name, o.Dir
	c.ListenClientUrls, c.AdvertiseClientUrls = urls(o.Client), urls(o.Client)
	c.ListenPeerUrls, c.AdvertisePeerUrls = urls(o.Peer), urls(o.AdvertisedPeer)
	c.InitialCluster, c.InitialClusterToken = o.InitialCluster, "reliability"
	if o.JoinsExistingCluster {
		c.ClusterState = embed.ClusterStateFlagExisting
	}
	c.LogLevel = "warn"
	c.GRPCKeepAliveMinTime = time.Second
	server, err := embed.StartEtcd(c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.Close()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	select {
	case err := <-server.Err():
		fmt.Fprintln(os.Stderr, err)
		return 1
	case <-ended:
		return 0
	}
}

func urls(address string) []url.URL { return []url.URL{{Scheme: "http", Host: address}} }

// etcdMember is one of three members.
type etcdMember struct {
	t       testing.TB
	config  memberConfig
	link    *processtest.Link // its peers reach it through this link
	process *processtest.Process
	id      string // of its current data, in hexadecimal
}

// cluster is an etcd of three members.
type cluster struct {
	t       testing.TB
	dir     string
	members []*etcdMember
}

// fromPeer finds the sender in the header of a stream between members.
var fromPeer = regexp.MustCompile(`(?i)x-server-from: ([0-9a-f]+)`)

func newCluster(t testing.TB, dir string) *cluster {
	c := &cluster{t: t, dir: dir}
	var initial []string
	for i := range 3 {
		m := &etcdMember{t: t, config: memberConfig{
			Name: fmt.Sprint("m", i), Dir: filepath.Join(dir, fmt.Sprint("m", i)),
			Client: processtest.Local(processtest.FreePort(t)), Peer: processtest.Local(processtest.FreePort(t)),
		}}
		m.link = processtest.NewLink(t, m.config.Peer, func(first []byte) string {
			if found := fromPeer.FindSubmatch(first); found != nil {
				return string(found[1])
			}
			return ""
		})
		m.config.AdvertisedPeer = m.link.Address()
		initial = append(initial, m.config.Name+"=http://"+m.config.AdvertisedPeer)
		c.members = append(c.members, m)
	}
	for _, m := range c.members {
		m.config.InitialCluster = strings.Join(initial, ",")
		m.start()
	}
	return c
}

// start runs the member on its data.
func (m *etcdMember) start() {
	document, err := json.Marshal(m.config)
	if err != nil {
		m.t.Error(err)
		return
	}
	m.process = processtest.Start(m.t, processtest.Options{
		Name: "etcd-" + m.config.Name, Path: os.Args[0], Env: []string{memberVariable + "=" + string(document)},
	})
}

func (c *cluster) endpoints() (out []string) {
	for _, m := range c.members {
		out = append(out, "http://"+m.config.Client)
	}
	return out
}

// leader returns the leader according to members that answer; nil if there is none.
func (c *cluster) leader(ctx context.Context) *etcdMember {
	for _, m := range c.members {
		if !m.process.Running() {
			continue
		}
		status, err := m.status(ctx)
		if err != nil {
			continue
		}
		m.id = fmt.Sprintf("%x", status.Header.MemberId)
		if status.Leader == status.Header.MemberId {
			return m
		}
	}
	return nil
}

// status asks only this member.
func (m *etcdMember) status(ctx context.Context) (*clientv3.StatusResponse, error) {
	client, err := newClient("http://" + m.config.Client)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return client.Status(ctx, "http://"+m.config.Client)
}

// isolate cuts a member off from the others, in both directions.
func (c *cluster) isolate(ctx context.Context, alone *etcdMember) {
	if status, err := alone.status(ctx); err == nil {
		alone.id = fmt.Sprintf("%x", status.Header.MemberId)
	}
	for _, m := range c.members {
		if m == alone {
			m.link.Cut()
		} else {
			m.link.CutFrom(alone.id)
		}
	}
}

// scatter cuts all members off from each other.
func (c *cluster) scatter() {
	for _, m := range c.members {
		m.link.Cut()
	}
}

// mend reconnects all members.
func (c *cluster) mend() {
	for _, m := range c.members {
		m.link.Mend()
	}
}

// replace removes a dead member with its data from the cluster, and adds an empty one in its
// place.
func (c *cluster) replace(ctx context.Context, dead *etcdMember) error {
	client, err := newClient(c.endpoints()...)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	all, err := client.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, m := range all.Members {
		if m.Name == dead.config.Name {
			if err := await(ctx, 15*time.Second, func() error { _, err := client.MemberRemove(ctx, m.ID); return err }); err != nil {
				return fmt.Errorf("remove the dead member: %w", err)
			}
		}
	}
	if err := os.RemoveAll(dead.config.Dir); err != nil {
		return err
	}
	var added *clientv3.MemberAddResponse
	err = await(ctx, 15*time.Second, func() (err error) {
		added, err = client.MemberAddAsLearner(ctx, []string{"http://" + dead.config.AdvertisedPeer})
		return err
	})
	if err != nil {
		return fmt.Errorf("add a learner: %w", err)
	}
	dead.config.JoinsExistingCluster = true
	dead.start()
	return await(ctx, 15*time.Second, func() error { _, err := client.MemberPromote(ctx, added.Member.ID); return err })
}

// newClient returns a client that goes through no link.
func newClient(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: 2 * time.Second,
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: time.Second,
		MaxCallSendMsgSize: 64 << 20,
	})
}
