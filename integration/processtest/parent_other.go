//go:build !linux

package processtest

import "syscall"

// dieWithParent does nothing here: an interrupted test run may leave processes.
func dieWithParent(*syscall.SysProcAttr) {}
