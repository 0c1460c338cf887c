// Package member runs the embedded etcd: a cluster of one, without any TCP
// port, in a child process of the server or in the server itself; or, in a
// child process, one of several members (Cluster).
//
// In a child process, the default: the parent makes a Child and calls Start,
// which makes a short private directory for a unix socket, executes the same
// binary again and waits until RunChild, there, has said that etcd is ready.
// Run then keeps the child alive. Whatever ends etcd (a full disk, a panic, a
// kill) ends the child only: Run starts another on the same socket, also in
// place of one that does not answer (probe.go), and a client made by Dial
// reconnects to it by itself. While there is none, that client fails at once
// with the reason. Run also keeps the store in shape (package upkeep).
//
//	child, err := member.NewChild(member.ChildOptions{DataDir: dir, Args: []string{"store", "run"}, Logger: logger})
//	_, err = child.Start(ctx)
//	client, err := child.Dial(logger)
//	err = child.Run(ctx)
//
// Parent and child hold on to each other by two pipes. The child's standard
// input brings it one line, its orders, and then nothing until the parent
// ends, however it ends: end of file tells the child to stop. Descriptor 3
// takes one line back, that the child is ready or why it cannot be. Signals
// play no part in it, so a Ctrl-C or a service manager that signals every
// process does not take the store away before the parent is done with it.
//
// One of several is ready when a majority runs. Until then the child reports
// what it waits for (waiting.go), and the parent passes it on (Child.Ready). Who
// the members are is in the data directory (identity.go); an empty one begins as
// an initial member or joins (cluster.go). The parent looks at all members every
// second, and has its clients call its own, or another that serves (peers.go).
//
// In process: Start returns a Member, and its Client calls etcd without a
// socket. That is faster, and the whole process ends if etcd does.
//
// Start refuses to begin what would soon end badly: on a file system with too
// little space (space.go), and on damaged data, of which it says what is
// damaged, where, and what to do (damage.go).
//
// Whoever starts etcd first takes the lock of the data directory (lock.go),
// whose file names the holder.
package member
