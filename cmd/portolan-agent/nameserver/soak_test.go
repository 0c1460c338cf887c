package nameserver_test

import (
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/portolan-mesh/portolan/storage/longtest"
)

// TestSoakHangingResolver: while the only resolver hangs, 5,000 questions a second come, half of them
// for names of the mesh. These are all answered, and what waits is bounded. At most 100 of them are
// under way, since the system drops what a socket has no room for.
func TestSoakHangingResolver(t *testing.T) {
	length := longtest.Soak(t)
	if length == 0 {
		length = time.Second
	}
	u := startUpstream(t)
	u.set(hang)
	m := startMachine(t, nil, u)
	m.table.Update(resources(t, hosts), nil)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp", m.address)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.UDPConn).SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	var answered, failed atomic.Int64
	var reading sync.WaitGroup
	reading.Go(func() {
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			answer := &dns.Msg{}
			switch err := answer.Unpack(buffer[:n]); {
			case err != nil:
				t.Error(err)
			case answer.Rcode == dns.RcodeServerFailure:
				failed.Add(1)
			case summary(answer, nil) == "NOERROR 10.9.0.1":
				answered.Add(1)
			default:
				t.Errorf("it is %s", summary(answer, nil))
			}
		}
	})
	send := func(name string) {
		text, err := new(dns.Msg).SetQuestion(name, dns.TypeA).Pack()
		if err == nil {
			_, err = conn.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	before := runtime.NumGoroutine()
	var sent, most, heap int
	var looked time.Time
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < length; <-tick.C {
		for due := int(time.Since(began).Seconds() * 2500); sent < due && int64(sent)-answered.Load() < 100; sent++ {
			send("web.test.")
			send(fmt.Sprintf("name-%d.example.com.", sent))
		}
		if most = max(most, runtime.NumGoroutine()); time.Since(looked) > 100*time.Millisecond {
			looked = time.Now()
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			heap = max(heap, int(now.HeapAlloc>>20))
		}
	}
	eventually(t, "all names of the mesh are answered", func() error {
		if n := answered.Load(); n != int64(sent) {
			return fmt.Errorf("%d of %d are", n, sent)
		}
		return nil
	})
	eventually(t, "all others fail", func() error {
		if n := failed.Load(); n != int64(sent) {
			return fmt.Errorf("%d of %d do", n, sent)
		}
		return nil
	})
	s := m.Status()
	if least := int(length.Seconds() * 250); sent < least {
		t.Errorf("the names of the mesh waited for the resolver: %d were answered, want %d at least", sent, least)
	}
	t.Logf("%d questions in %s: goroutines %d, at most %d; heap at most %d MiB; refused %d, failed %d", 2*sent, length, before, most, heap, s.Refused, s.Failed)
	if most > before+2*1000+200 { // one for each question that waits, another when its time is over
		t.Errorf("there were %d goroutines", most)
	}
	if s.Refused == 0 {
		t.Error("the bound was not reached")
	}
	_ = conn.Close()
	reading.Wait()
}
