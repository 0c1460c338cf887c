package integration

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/integration/processtest"
	"github.com/portolan-mesh/portolan/storage/longtest"
)

// emulator runs programs for arm64 on other machines.
const emulator = "qemu-aarch64-static"

// emulated has the kernel run programs for arm64 by the emulator, for a command in a user namespace
// of its own: the programs start others. The kernel has such a table of each user namespace since
// Linux 6.7.
const emulated = `
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf '%s' ":arm64:M::$MAGIC:$MASK:$EMULATOR:F" >/proc/sys/fs/binfmt_misc/register
exec "$@"`

// arm64Starts: what is made for arm64 says so, and its programs start. In the short form that is
// the agent; in the long one also the server, with its store, which answers a command line for
// arm64.
func arm64Starts(t *testing.T) {
	needTools(t, emulator)
	products := []string{"portolan-agent"}
	if longtest.Soak(t) > 0 { // a server that was not compiled before takes minutes
		products = append(products, "portolan")
	}
	dist := t.TempDir()
	makeDist(t, "..", dist, "ARCH=arm64", "PRODUCT="+strings.Join(products, ","))
	programs := map[string]string{}
	for _, name := range products {
		if got := output(t, "", "dpkg-deb", "--field", distFile(t, dist, name+"_*.deb"), "Architecture"); got != "arm64\n" {
			t.Errorf("the package of Debian of %s is for %q", name, got)
		}
		if got := output(t, "", "rpm", "--query", "--package", "--queryformat", "%{ARCH}", distFile(t, dist, name+"_*.rpm")); !strings.HasSuffix(got, "aarch64") {
			t.Errorf("the package of RPM of %s is for %q", name, got)
		}
		image, root := unpackImage(t, distFile(t, dist, name+"_*.oci.tar"))
		if image.Architecture != "arm64" {
			t.Errorf("the image of %s is for %q", name, image.Architecture)
		}
		unpacked := t.TempDir()
		output(t, "", "tar", "-xf", distFile(t, dist, name+"_*.tar.gz"), "-C", unpacked)
		programs[name] = filepath.Join(unpacked, "usr/bin", name)
		output(t, "", "cmp", programs[name], filepath.Join(root, image.Config.Entrypoint[0]))
		file, err := elf.Open(programs[name])
		if err != nil {
			t.Fatal(err)
		}
		if file.Machine != elf.EM_AARCH64 {
			t.Errorf("%s is for %s", name, file.Machine)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
		if got := output(t, "", emulator, programs[name], "version"); !strings.HasPrefix(got, name+" v1.2.3 (") || !strings.HasSuffix(got, " linux/arm64)\n") {
			t.Errorf("%s says %q", name, got)
		}
	}
	config := write(t, "config.yaml", "api: ['https://127.0.0.1:15080']\nxds: ['127.0.0.1:15012']\nproxy: {type: sidecar, name: web, namespace: shop, serviceAccount: web, interception: REDIRECT}\nrun: /run/portolan-agent\nstate: /var/lib/portolan-agent\ncapture: {}\n")
	if got := output(t, "", emulator, programs["portolan-agent"], "capture", "print", "--config", config); !strings.Contains(got, "table inet portolan {") {
		t.Errorf("the rules are %q", got)
	}
	if program, ok := programs["portolan"]; ok {
		arm64Serves(t, program)
	}
}

// arm64Serves: the server starts with its store, takes an object and gives it back.
func arm64Serves(t *testing.T, program string) {
	file, err := exec.LookPath(emulator)
	if err != nil {
		t.Fatal(err)
	}
	own := []string{"--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-euc"}
	env := []string{
		"EMULATOR=" + file,
		`MAGIC=\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00`,
		`MASK=\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff`,
	}
	probe := exec.CommandContext(t.Context(), "unshare", append(own, emulated, "sh", "true")...)
	probe.Env = append(os.Environ(), env...)
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED, AND NOTHING OF THE SERVER WAS TESTED: programs for arm64 cannot start others here: %v: %s", err, out)
	}
	api := local(freePort(t))
	processtest.Start(t, processtest.Options{
		Name: "server for arm64", Path: "unshare", Env: env,
		Args: append(own, emulated, "sh", program, "serve", "--new-store", "--data-dir", filepath.Join(t.TempDir(), "data"), "--api-address", api, "--xds-address", "127.0.0.1:0"),
	})
	client := clientOf(t)
	eventually(t, "the server for arm64 is ready", func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+api+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(r)
		if err == nil {
			if err = response.Body.Close(); response.StatusCode != http.StatusOK {
				err = fmt.Errorf("it says %s", response.Status)
			}
		}
		return err
	})
	output(t, "", emulator, program, "apply", "-f", write(t, "far.yaml", serviceAt("shop", "far.shop.test", "10.9.0.1", "")), "--server", "http://"+api)
	var got struct{ Spec struct{ Hosts []string } }
	text := output(t, "", emulator, program, "get", "serviceentry", "far-shop-test", "-n", "shop", "-o", "json", "--server", "http://"+api)
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&got); err != nil || len(got.Spec.Hosts) != 1 || got.Spec.Hosts[0] != "far.shop.test" {
		t.Errorf("the object is %s: %v", text, err)
	}
}
