package objects

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// startWithStatuses starts an API on an etcd of its own, which keeps the conditions of clients.
func startWithStatuses(t *testing.T) clitest.API {
	t.Helper()
	e := resttest.StartEtcd(t, etcd.Options{})
	return line.On(resttest.Start(t, 0, func(o *rest.Options) { o.Store, o.Cache, o.History = e.Store, e.Statuses, e.Store }))
}

// TestPatchStatus: a patch of the status sets conditions and leaves the object as it is.
func TestPatchStatus(t *testing.T) {
	t.Parallel()
	a := startWithStatuses(t)
	a.Must(t, clitest.Entry("x", ", namespace: shop")+"---\n"+clitest.Entry("z", ", namespace: shop"), "apply", "-f", "-")
	checked := func(status string) string {
		return `status: {conditions: [{type: Checked, status: "` + status + `", reason: Asked}]}`
	}
	const shows = `jsonpath={.metadata.generation} {.spec.resolution} {.status.conditions[?(@.type=="Checked")].status}`
	for _, step := range []struct {
		args       []string
		says, then string
	}{
		{[]string{"se/x", "-p", checked("True"), "--dry-run=server"}, "serviceentry/shop/x  configured (dry run)\n", "1 STATIC "},
		{[]string{"se/x", "-p", checked("True")}, "serviceentry/shop/x  configured  rev ", "1 STATIC True"},
		{[]string{"se/x", "-p", checked("True")}, "serviceentry/shop/x  unchanged  rev ", "1 STATIC True"},
		{[]string{"se/x", "-p", "spec: {resolution: DNS}\n" + checked("False")}, "serviceentry/shop/x  configured  rev ", "1 STATIC False"},
		{[]string{"se", "--all", "--type=json", "-p", `[{op: add, path: /status, value: {conditions: [{type: Checked, status: "True"}]}}]`, "-o", "name"}, "serviceentry/shop/x\nserviceentry/shop/z\n", "1 STATIC True"},
	} {
		out := a.Must(t, "", append([]string{"patch", "-n", "shop", "--subresource=status"}, step.args...)...)
		if !strings.HasPrefix(out, step.says) {
			t.Errorf("%q: %s", step.args, out)
		}
		clitest.Same(t, strings.Join(step.args, " "), a.Must(t, "", "get", "se/x", "-n", "shop", "--consistent", "-o", shows), step.then)
	}
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"se/x", "-p", checked("True"), "--subresource=scale"}, exit.Usage, "--subresource"},
		{[]string{"se/x", "-p", checked("True"), "-m", "why"}, exit.Usage, "--message is about objects, and a status is kept beside its object: leave it out, or --subresource"},
		{[]string{"se/none", "-p", checked("True")}, exit.Failure, "serviceentry/shop/none: not found"},
		{[]string{"se/x", "-p", "metadata: {name: other}"}, exit.Data, "nothing was patched: serviceentry/shop/x: metadata.name cannot become"},
		{[]string{"se/x", "-p", checked("Perhaps")}, exit.Data, "serviceentry/shop/x: its status was not patched: "},
		{[]string{"se/x", "-p", `{metadata: {resourceVersion: "1"}}`}, exit.Conflict, "serviceentry/shop/x: its status was not patched: "},
	} {
		o := a.Do(t, "", append([]string{"patch", "-n", "shop", "--subresource=status"}, test.args...)...)
		if o.Code != test.code || o.Out != "" || !strings.Contains(o.Err, test.says) {
			t.Errorf("%q: %+v", test.args, o)
		}
	}
}
