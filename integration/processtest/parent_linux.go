package processtest

import "syscall"

// dieWithParent makes the kernel end a process with the thread that starts it.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
