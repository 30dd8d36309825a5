//go:build e2e

package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// TestMountPropagationIsCheckedAtStart: the real program in a separate mount namespace, like a container's, with the kubelet's
// folders mounted as by a manifest with and without mountPropagation.
func TestMountPropagationIsCheckedAtStart(t *testing.T) {
	const (
		own  = "mount -t tmpfs none /var/lib\nmkdir -p /var/lib/kubelet/pods\n"
		root = own + "mount --bind /var/lib/kubelet /var/lib/kubelet\n"
		pods = own + "mount --bind /var/lib/kubelet/pods /var/lib/kubelet/pods\n"
	)
	for name, tc := range map[string]struct {
		mounts string
		wrong  string // the folder in the message
	}{
		"no mount point":            {own, ""},
		"the folder, private":       {root, "/var/lib/kubelet "},
		"the folder, a slave":       {root + "mount --make-shared /var/lib/kubelet\nmount --make-slave /var/lib/kubelet\n", "/var/lib/kubelet "},
		"the folder, shared":        {root + "mount --make-shared /var/lib/kubelet\n", ""},
		"the pods' folder, private": {pods, "/var/lib/kubelet/pods "},
		"the pods' folder, shared":  {pods + "mount --make-shared /var/lib/kubelet/pods\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			p := &program{t: t, dir: dir, binary: build(t, dir), kubelet: "/var/lib/kubelet", mounts: tc.mounts}
			p.start()
			code, body := drivertest.Page(t, "http://"+p.http+"/readyz")
			wrong := code == http.StatusServiceUnavailable
			if wrong != (tc.wrong != "") || wrong && !strings.Contains(body, tc.wrong+"is mounted here without mountPropagation: Bidirectional") {
				t.Errorf("/readyz = %d %q, want it wrong about %q", code, body, tc.wrong)
			}
			if logged := strings.Contains(p.log.String(), "mountPropagation: Bidirectional"); logged != (tc.wrong != "") {
				t.Errorf("the log names the mistake: %v\n%s", logged, p.log.String())
			}
		})
	}
}
