package integration

import (
	"fmt"
	"strings"
	"testing"
)

// TestGetWatchOutlivesItsServer: during get -w the server is killed and started again. The
// command reports it, continues, and ends without an error when it is told to.
func TestGetWatchOutlivesItsServer(t *testing.T) {
	s := startServer(t, serverOptions{})
	s.apply(sound)
	watch := start(t, "get-w", binary, "get", "vs", "-n", "shop", "-w", "-o", "name", "--server", "http://"+s.api)
	says := func(words string) {
		t.Helper()
		eventually(t, "get -w says "+words, func() error {
			if !strings.Contains(watch.output(), words) {
				return fmt.Errorf("it has said\n%s", watch.output())
			}
			return nil
		})
	}
	says("virtualservice/shop/web\n")
	s.kill()
	says("The watch goes on from revision ")
	s.start()
	s.apply(strings.ReplaceAll(sound, "web", "later"))
	says("virtualservice/shop/later\n")
	if err := watch.terminate(t); err != nil {
		t.Errorf("get -w ended with %v", err)
	}
}
