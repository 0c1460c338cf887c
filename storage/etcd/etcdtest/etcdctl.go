package etcdtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Passwords returns the password that Etcdctl gives a user.
func Passwords(user string) string { return "password of " + user }

// documented returns the command lines of a program from the code blocks of a page of
// docs/operations: a test runs what the page tells operators to run.
func documented(t testing.TB, page, program string) []string {
	t.Helper()
	root := ".." // the module's root, seen from the folder of the test
	for _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil && len(root) < 30; _, err = os.Stat(filepath.Join(root, "go.mod")) {
		root = filepath.Join("..", root)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/operations", page))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if line, ok := strings.CutPrefix(line, "    "); ok && strings.HasPrefix(line, program+" ") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	if len(out) == 0 {
		t.Fatalf("docs/operations/%s has no lines of %s", page, program)
	}
	return out
}

// Etcdctl runs etcdctl commands about users and roles. New users get the password that
// Passwords returns.
func Etcdctl(t testing.TB, client *clientv3.Client, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if err := etcdctl(t.Context(), client, strings.Fields(strings.TrimPrefix(line, "etcdctl "))); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

// EnableAuth follows the documented steps to turn on authentication in an etcd.
// Afterwards it has the users root, portolan and portolan-reader.
func EnableAuth(t testing.TB, client *clientv3.Client) {
	t.Helper()
	Etcdctl(t, client, documented(t, "external-etcd.md", "etcdctl")...)
}

func etcdctl(ctx context.Context, client *clientv3.Client, words []string) (err error) {
	if len(words) < 2 {
		return errors.New("there is no such command")
	}
	args := append(words[2:], "", "", "", "")
	switch words[0] + " " + words[1] {
	case "role add":
		_, err = client.RoleAdd(ctx, args[0])
	case "role grant-permission":
		kind, unknown := clientv3.StrToPermissionType(args[1])
		if unknown != nil {
			return unknown
		}
		_, err = client.RoleGrantPermission(ctx, args[0], args[2], args[3], kind)
	case "role revoke-permission":
		_, err = client.RoleRevokePermission(ctx, args[0], args[1], args[2])
	case "user add":
		_, err = client.UserAdd(ctx, args[0], Passwords(args[0]))
	case "user passwd":
		_, err = client.UserChangePassword(ctx, args[0], Passwords(args[0]))
	case "user grant-role":
		_, err = client.UserGrantRole(ctx, args[0], args[1])
	case "auth enable":
		_, err = client.AuthEnable(ctx)
	default:
		return errors.New("there is no such command")
	}
	return err
}
