package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyKeptConnectionsAfterDisable: a connection between two sidecars that began with mutual TLS
// keeps it after a change to DISABLE, until the drain time of the server's old listener is over. Then
// it is cut, and new ones are plaintext. Nobody logs a warning.
func TestEnvoyKeptConnectionsAfterDisable(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		m := newPeerNetworks(t)
		m.drain = 10
		m.server = startServer(t, serverOptions{})
		m.xds = startSocketRelay(t, m.server.xds)
		m.apply(peerEntry, peerMode("STRICT"))
		in, out := m.sidecars(v, identified(t, m.of, shopAccounts+"app"), identified(t, m.of, shopAccounts+"client"))
		wire := m.client.sniff("p", secretWord)
		echo := func(c net.Conn) (onWire int64, err error) {
			before := wire.Load()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err = fmt.Fprintln(c, secretWord); err == nil {
				_, err = io.ReadFull(c, make([]byte, len(secretWord)+1))
			}
			return wire.Load() - before, err
		}
		kept, err := m.client.dial(t.Context(), "10.9.0.1:5432", captureMark)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kept.Close() })
		_ = kept.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadFull(kept, make([]byte, len(peerGreeting)+1)); err != nil {
			t.Fatal(err)
		}
		if seen, err := echo(kept); err != nil || seen > 0 {
			t.Fatalf("before the change %d packets have what was sent, %v", seen, err)
		}
		m.must(peerMode("DISABLE"), "apply", "-f", "-", "--wait")
		began := time.Now()
		if seen, err := echo(kept); err != nil || seen > 0 {
			t.Errorf("after the change %d packets of the kept connection have what was sent, %v", seen, err)
		}
		eventually(t, "a new connection is plaintext", func() error {
			before := wire.Load()
			if err := greets(m.client, captureMark, "10.9.0.1:5432", "hello\n", peerGreeting); err != nil {
				return err
			}
			if wire.Load() == before {
				return errors.New("no packet has what was sent")
			}
			return nil
		})
		if err := kept.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(kept); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it is not cut within a minute: %v", err)
		}
		if took := time.Since(began); took < 5*time.Second {
			t.Errorf("it is cut after %s, before the drain time is over", took)
		}
		for what, log := range map[string]string{"app": in.process.output(), "client": out.process.output(), "server": m.process.output()} {
			for line := range strings.Lines(log) {
				if strings.Contains(line, "ROOTCA") {
					t.Errorf("%s logs %s", what, line)
				}
			}
		}
	})
}
