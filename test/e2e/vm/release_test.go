//go:build vm

package vm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/vm"
)

// releaseMachine boots a machine of another release of Debian for this test alone.
func releaseMachine(t *testing.T, suite, kernel string) *host {
	t.Helper()
	cfg := config
	var err error
	cfg.Image, err = image(suite)
	must(t, err)
	cfg.Kernel = kernel
	m, err := bootWith(t, cfg)
	must(t, err)
	m.endWith(t)
	h := &host{machine: m, t: t, cloud: vm.DigitalOcean}
	t.Logf("Linux %s", h.run("uname -r"))
	return h
}

// Debian 11 has Linux 5.10, which has no mount_setattr. The node program ends at its start and says so, before the kubelet
// could register it.
func TestKernelThatIsTooOld(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := releaseMachine(t, "bullseye", "")
	for _, flags := range []string{"--cloud=digitalocean", "--cloud=linode", "--cloud=yandex", "--cloud=local --local-pool=/var/lib/pool --node-id=a"} {
		out, err := h.guest.Run(within(t), fmt.Sprintf("mkdir -p /var/lib/kubelet/pods; cloudblock-node --endpoint=unix:///run/csi.sock %s; code=$?; ls /run/csi.sock; exit $code", flags))
		var ended *vm.ExitError
		if !errors.As(err, &ended) || ended.Code != 1 || !strings.Contains(out, "needs Linux 5.12 or newer") || !strings.Contains(out, "No such file") {
			t.Errorf("cloudblock-node %s = %v\n%s", flags, err, out)
		}
	}
}
