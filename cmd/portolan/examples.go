package main

import "github.com/spf13/cobra"

// examples has the examples of commands for which a line or two is enough. The others have
// theirs beside their description.
var examples = map[string]string{
	"portolan api-resources":           "  portolan api-resources",
	"portolan auth roles":              "  portolan auth roles",
	"portolan auth whoami":             "  portolan auth whoami\n  portolan auth whoami --server https://mesh.example.com:15080 --token-file alice.token",
	"portolan ca init":                 "  portolan ca init   # before the first certificate, such as to hand out the root",
	"portolan ca rotate start":         "  portolan ca rotate start",
	"portolan ca rotate finish":        "  portolan ca rotate finish   # when portolan ca status says that it may",
	"portolan ca rotate abort":         "  portolan ca rotate abort",
	"portolan ca status":               "  portolan ca status\n  portolan ca status -o json",
	"portolan certificate renew":       "  portolan certificate renew --out /etc/portolan/web --server https://mesh.example.com:15080",
	"portolan config current-context":  "  portolan config current-context",
	"portolan config delete-context":   "  portolan config delete-context staging",
	"portolan config get-contexts":     "  portolan config get-contexts",
	"portolan config set-context":      "  portolan config set-context prod --server https://mesh.example.com:15080 --ca roots.pem --namespace shop",
	"portolan config use-context":      "  portolan config use-context prod",
	"portolan logout":                  "  portolan logout",
	"portolan secret key add":          "  portolan secret key add && portolan secret reseal",
	"portolan secret list":             "  portolan secret list -n shop",
	"portolan secret reseal":           "  portolan secret reseal",
	"portolan secret status":           "  portolan secret status",
	"portolan serve":                   "  portolan serve --data-dir /tmp/mesh   # for this machine alone\n  portolan serve --new-store --data-dir /var/lib/portolan/store --api-address 0.0.0.0:15080 --secure-xds-address 0.0.0.0:15012   # a first start\n  portolan serve --data-dir /var/lib/portolan/store --join https://10.0.0.1:15080 --token-file cp-2.token",
	"portolan source describe":         "  portolan source describe etcd",
	"portolan source list":             "  portolan source list",
	"portolan store compact":           "  portolan store compact",
	"portolan store defrag":            "  portolan store defrag",
	"portolan store member list":       "  portolan store member list",
	"portolan store member promote":    "  portolan store member promote cp-2",
	"portolan store member remove":     "  portolan store member remove cp-3",
	"portolan store quarantine delete": "  portolan store quarantine delete /portolan/v1/mesh/config/example.io/Kettle/shop/one",
	"portolan store quarantine list":   "  portolan store quarantine list",
	"portolan store status":            "  portolan store status || echo 'something needs attention'",
	"portolan token list":              "  portolan token list -n shop",
	"portolan upgrade check":           "  portolan upgrade check   # with the new program, against the running servers",
	"portolan user delete":             "  portolan user delete alice",
	"portolan user disable":            "  portolan user disable alice",
	"portolan user enable":             "  portolan user enable alice",
	"portolan user list":               "  portolan user list",
	"portolan user token list":         "  portolan user token list alice",
	"portolan version":                 "  portolan version",
}

// addExamples gives commands without examples theirs.
func addExamples(c *cobra.Command) {
	if text, ok := examples[c.CommandPath()]; ok && c.Example == "" {
		c.Example = text
	}
	for _, sub := range c.Commands() {
		addExamples(sub)
	}
}
