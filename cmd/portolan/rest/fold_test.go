package rest_test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// fold is a handler of an informer that checks the sequence of its events. It may get
// its last revision again, even a deletion that it knows from a list.
type fold struct {
	mu      sync.Mutex        // guards the fields below
	held    map[string]string // versions, by name
	seen    []string          // name@version of all new states
	deleted map[string]int
	newest  int
	wrong   []string
}

var _ cache.ResourceEventHandler = (*fold)(nil)

// OnAdd implements cache.ResourceEventHandler.
func (f *fold) OnAdd(object any, _ bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := object.(*unstructured.Unstructured)
	if held, ok := f.held[o.GetName()]; ok {
		f.fault("%s is added at %s and is there at %s", o.GetName(), o.GetResourceVersion(), held)
	}
	f.hold(o)
}

// OnUpdate implements cache.ResourceEventHandler.
func (f *fold) OnUpdate(before, now any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old, o := before.(*unstructured.Unstructured), now.(*unstructured.Unstructured)
	if held := f.held[o.GetName()]; held != old.GetResourceVersion() {
		f.fault("%s is updated from %s and is there at %q", o.GetName(), old.GetResourceVersion(), held)
	}
	if number(o) < number(old) {
		f.fault("%s goes back from %s to %s", o.GetName(), old.GetResourceVersion(), o.GetResourceVersion())
	}
	f.hold(o)
}

// OnDelete implements cache.ResourceEventHandler.
func (f *fold) OnDelete(object any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unknown, listed := object.(cache.DeletedFinalStateUnknown) // a list lacked the object
	if listed {
		object = unknown.Obj
	}
	o := object.(*unstructured.Unstructured)
	name := o.GetName()
	_, there := f.held[name]
	switch {
	case listed && !there:
		f.fault("%s is missing from a list and was not there", name)
	case !listed && number(o) < f.newest:
		f.fault("%s is deleted at %s, after revision %d was told", name, o.GetResourceVersion(), f.newest)
	}
	if there {
		f.deleted[name]++
	}
	delete(f.held, name)
	f.newest = max(f.newest, number(o))
}

func (f *fold) hold(o *unstructured.Unstructured) {
	if f.held[o.GetName()] != o.GetResourceVersion() {
		f.seen = append(f.seen, o.GetName()+"@"+o.GetResourceVersion())
	}
	f.held[o.GetName()] = o.GetResourceVersion()
	f.newest = max(f.newest, number(o))
}

func (f *fold) fault(format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

func number(o *unstructured.Unstructured) int {
	n, err := strconv.Atoi(o.GetResourceVersion())
	if err != nil {
		return -1
	}
	return n
}

// String returns the objects that exist according to the events.
func (f *fold) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for name, version := range f.held {
		lines = append(lines, name+"@"+version)
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

func (f *fold) equal(truth string) bool { return f.String() == truth }

// faults returns what was wrong with the sequence. If complete is set, it includes the
// changes that were missing.
func (f *fold) faults(changes map[string][]string, complete bool) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	wrong := slices.Clone(f.wrong)
	if !complete {
		return wrong
	}
	for name, states := range changes {
		deletions := 0
		for _, state := range states {
			if state == "-" {
				deletions++
			} else if !slices.Contains(f.seen, name+"@"+state) {
				wrong = append(wrong, fmt.Sprintf("%s@%s was not told", name, state))
			}
		}
		if told := f.deleted[name]; told != deletions {
			wrong = append(wrong, fmt.Sprintf("%s was deleted %d times, and told %d times", name, deletions, told))
		}
	}
	return wrong
}

// cutter stands between clients and a server. It cuts a connection after a given number
// of bytes of the server's answers, and again after as many.
type cutter struct {
	listener net.Listener
	target   string
	every    uint64
	reset    bool
	running  sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	bytes uint64
	cuts  int
	open  map[net.Conn]struct{}
}

func newCutter(t *testing.T, target string, o cutting) *cutter {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: listener, target: target, every: o.at, reset: o.reset, open: map[net.Conn]struct{}{}}
	c.running.Go(c.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		c.mu.Lock()
		for conn := range c.open {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.running.Wait()
	})
	return c
}

func (c *cutter) address() string { return c.listener.Addr().String() }

// counted returns the bytes of answers forwarded, and the number of cuts.
func (c *cutter) counted() (bytes uint64, cuts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes, c.cuts
}

func (c *cutter) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		c.mu.Lock()
		c.open[client], c.open[server] = struct{}{}, struct{}{}
		c.mu.Unlock()
		c.running.Go(func() {
			defer c.end(client, server, false)
			c.pass(client, server, false)
		})
		c.running.Go(func() {
			cut := c.pass(server, client, true)
			c.end(client, server, cut && c.reset)
		})
	}
}

// pass forwards one direction until it ends or is cut.
func (c *cutter) pass(from, to net.Conn, answers bool) (cut bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if answers {
			n, cut = c.count(n)
		}
		if n > 0 {
			if _, broken := to.Write(buffer[:n]); broken != nil {
				return false
			}
		}
		if cut || err != nil {
			return cut
		}
	}
}

// count says how many of n bytes may pass, and whether the connection ends after them.
func (c *cutter) count(n int) (pass int, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := c.every * uint64(c.cuts+1)
	if c.every == 0 || c.cuts >= 2 || c.bytes+uint64(n) < limit {
		c.bytes += uint64(n)
		return n, false
	}
	pass = int(limit - c.bytes)
	c.bytes = limit
	c.cuts++
	return pass, true
}

func (c *cutter) end(client, server net.Conn, reset bool) {
	if tcp, ok := client.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = client.Close()
	_ = server.Close()
}
