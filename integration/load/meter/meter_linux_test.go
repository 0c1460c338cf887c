package meter_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/integration/load/meter"
)

// TestProcess measures this process, whose work is known: it uses some processor time and some
// memory.
func TestProcess(t *testing.T) {
	p := meter.Process(os.Getpid())
	before, err := p.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ResetPeak(); err != nil {
		t.Fatal(err)
	}
	const size, work = 64 << 20, 20 * time.Millisecond
	memory := make([]byte, size)
	var now meter.Usage
	for now.CPU < before.CPU+work {
		for i := 0; i < size; i += 4096 {
			memory[i]++
		}
		if now, err = p.Usage(); err != nil {
			t.Fatal(err)
		}
	}
	if now.Peak < size || now.Resident > now.Peak {
		t.Errorf("%d bytes, and %d at most, with %d in use", now.Resident, now.Peak, len(memory))
	}
}

// TestChildren finds a started process, but not one that has ended.
func TestChildren(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	own := meter.Process(os.Getpid())
	found, err := own.Children()
	if err != nil || len(found) != 1 || int(found[0]) != child.Process.Pid {
		t.Errorf("children %v, %v; want %d", found, err, child.Process.Pid)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if found, err := own.Children(); err != nil || len(found) != 0 {
		t.Errorf("children %v, %v, when it has ended", found, err)
	}
	if _, err := meter.Process(child.Process.Pid).CPU(); err == nil {
		t.Error("a process that has ended is measured")
	}
}
