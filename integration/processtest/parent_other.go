//go:build !linux

package processtest

import "syscall"

// dieWithParent cannot be had here: an interrupted test run may leave processes.
func dieWithParent(*syscall.SysProcAttr) {}
