// Package member runs the embedded etcd. It is a cluster of one without any TCP port, in
// a child process of the server or in the server itself; or, in a child process, one of
// several members (Cluster).
//
// The default is a child process. The parent makes a Child and calls Start. Start makes
// a short private directory for a unix socket, executes the same binary again, and waits
// until RunChild, there, has said that etcd is ready. Run then keeps the child alive.
// Whatever ends etcd (a full disk, a panic, a kill) ends the child only. Run then starts
// another one on the same socket. It also replaces a child that does not answer
// (probe.go). A client made by Dial reconnects. While no child runs, that client fails
// at once with the reason. Run also maintains the store (package upkeep).
//
//	child, err := member.NewChild(member.ChildOptions{DataDir: dir, Args: []string{"store", "run"}, Logger: logger})
//	_, err = child.Start(ctx)
//	client, err := child.Dial(logger)
//	err = child.Run(ctx)
//
// Two pipes connect parent and child. The child's standard input brings it one line, its
// orders, and nothing more until the parent ends, in whatever way: end of file tells the
// child to stop. On descriptor 3 the child reports that it is ready, or why it is not.
// Signals play no part, so a Ctrl-C or a service manager that signals every process does
// not stop the store before the parent has finished with it.
//
// One of several members is ready when a majority runs. Until then the child reports what
// it waits for (waiting.go), and the parent passes it on (Child.Ready). The data directory
// knows the members (identity.go); an empty one begins as an initial member or joins
// (cluster.go). The parent checks all members every second, and points its clients to its
// own, or to another that serves (peers.go).
//
// In process: Start returns a Member, and its Client calls etcd without a socket. That is
// faster, and the whole process ends if etcd does.
//
// Start refuses a store that would soon fail: on a file system with too little space
// (space.go), or with damaged data. Its error says what is damaged, where, and what to do
// (damage.go).
//
// The first process to start etcd takes the lock of the data directory (lock.go), whose
// file names the holder.
package member
