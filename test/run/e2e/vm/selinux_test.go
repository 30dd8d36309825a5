//go:build vm

package vm

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

// enforce switches SELinux on, with the policy of Debian, and makes `as-container LABEL COMMAND...`, which starts a command as
// a container runtime does: one domain leads to the next, and the last has the label. What it prints is in /var/log/containers.
const enforce = `set -e
mount -t selinuxfs selinuxfs /sys/fs/selinux
load_policy
mkdir -p /var/lib/kubelet/pods /var/lib/kubelet/plugins /var/log/containers
restorecon -RF -e /proc -e /sys / >/dev/null 2>&1
chcon -t container_log_t /var/log/containers
cd /usr/local/bin
for type in init_exec_t container_engine_exec_t; do cp /usr/bin/env $type && chcon -t $type $type; done
chcon -t container_file_t cloudblock-node
cat >as-container <<'EOF'
#!/bin/sh
exec init_exec_t container_engine_exec_t sh -c 'exec </dev/null >>/var/log/containers/log 2>&1
printf %s "$0" >/proc/self/attr/exec; exec "$@"' "$@"
EOF
chmod +x as-container
dmesg -C
setenforce 1`

// F1: the test runs the node program where SELinux is enforcing. With the label that the component selinux gives it, it
// serves volumes of each kind and nothing is denied. As an ordinary container it reads no disk, and doctor says what to
// do.
func TestSELinux(t *testing.T) {
	notShort(t)
	t.Parallel()
	component, err := os.ReadFile("../../../../deploy/components/selinux/kustomization.yaml")
	must(t, err)
	found := regexp.MustCompile(`type: (\w+_t)`).FindSubmatch(component)
	if found == nil {
		t.Fatal("the component selinux names no type")
	}
	machine := releaseMachine(t, "trixie", "security=selinux selinux=1 enforcing=0")
	machine.run("%s", enforce)

	t.Run("with the component", func(t *testing.T) {
		h := machine.labelled(t, string(found[1]))
		for _, fs := range []string{"ext4", "xfs", ""} {
			v := h.newVolume(fs, sizeFor(fs))
			v.attach()
			v.ok(v.stage, v.publish)
			v.down()
		}
		v := h.newVolume("ext4", sizeFor("ext4"))
		v.context.LUKS, v.secrets = true, map[string]string{driver.SecretLUKS: "correct horse"}
		v.attach()
		v.ok(v.stage, v.publish)
		v.down()
		if denied := h.run("dmesg | grep 'avc: .*denied.*scontext=[^ ]*:%s:' || true", found[1]); denied != "" {
			t.Errorf("SELinux denied:\n%s", denied)
		}
	})
	t.Run("as an ordinary container", func(t *testing.T) {
		h := machine.labelled(t, "container_t")
		v := h.newVolume("ext4", sizeFor("ext4"))
		v.attach()
		before := v.content()
		if err := v.stage(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("stage = %v, want Unavailable and why", err)
		}
		if v.content() != before {
			t.Error("the disk has changed")
		}
		var ended *vm.ExitError
		if _, err := h.guest.Run(within(t), asContainer("container_t")+" cloudblock-node doctor --cloud=digitalocean"); !errors.As(err, &ended) {
			t.Errorf("doctor = %v, want that something is wrong", err)
		}
		if said := h.run("cat /var/log/containers/log"); !strings.Contains(said, "runs as system_u:system_r:container_t:s0") || !strings.Contains(said, "add the component selinux") {
			t.Errorf("doctor said:\n%s", said)
		}
	})
}

// labelled starts the node program with a label.
func (h *host) labelled(t *testing.T, kind string) *host {
	t.Helper()
	n, err := h.guest.StartNodeUnder(within(t), asContainer(kind), h.cloud)
	if err != nil {
		t.Fatalf("%v\n%s", err, h.run("cat /var/log/containers/log; dmesg | grep avc: | tail -n 20"))
	}
	t.Cleanup(func() { must(t, n.Stop(within(t), "TERM")) })
	return &host{machine: h.machine, Node: n, t: t, cloud: h.cloud}
}

func asContainer(kind string) string { return "as-container system_u:system_r:" + kind + ":s0" }
