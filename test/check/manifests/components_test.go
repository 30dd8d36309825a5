package manifests_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// otherKubelet is where the kubelet is in the combinations with the component kubelet-dir.
const otherKubelet = "/var/lib/k0s/kubelet"

// combination is an operator's overlay: one of ours with components, in this order.
type combination struct {
	overlay    string
	components []string
}

func (c combination) name() string { return c.overlay + "+" + strings.Join(c.components, "+") }

// available are the components of each overlay. The folders of an overlay stand before those that all share.
func available(t *testing.T, overlay string) []string {
	t.Helper()
	var found []string
	own := filepath.Join(deploy, "overlays", overlay)
	for _, dir := range []string{own, filepath.Join(deploy, "components")} {
		files, err := filepath.Glob(filepath.Join(dir, "*", "kustomization.yaml"))
		must(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			name := filepath.Base(filepath.Dir(file))
			if strings.Contains(string(text), "kind: Component") && optional(overlay, name, dir == own) {
				found = append(found, name)
			}
		}
	}
	return found
}

// optional reports whether operators add a component to an overlay.
func optional(overlay, component string, own bool) bool {
	switch component {
	case "images", "driver-name", "node-bound": // part of every overlay that they are for
		return false
	case "snapshots":
		return own // the shared one is a part of it
	case "host-network", "node-allocatable", "driver-required":
		return overlay != "local" // which asks no metadata service, and has no attaches and no limit
	}
	vendor, isVendors := strings.CutPrefix(component, "vendor-")
	return !isVendors || vendor == overlay
}

// TestOverlaysNeedNoCustomResources: a cluster without the definitions of snapshots takes every overlay as it is.
func TestOverlaysNeedNoCustomResources(t *testing.T) {
	for _, overlay := range overlays(t) {
		o := parse(t, render(t, sets()[overlay]))
		if len(o.snapshotClasses) > 0 || len(o.hints) > 0 {
			t.Errorf("%s brings %v and %v", overlay, o.snapshotClasses, o.hints)
		}
		for name, pod := range o.pods {
			if slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "csi-snapshotter" }) {
				t.Errorf("%s: %s runs csi-snapshotter, which ends without the definitions", overlay, name)
			}
		}
		if !slices.Contains(available(t, overlay), "snapshots") {
			continue
		}
		o = parse(t, combination{overlay, []string{"snapshots"}}.render(t))
		if len(o.snapshotClasses) != 1 || o.snapshotClasses[0].Driver != o.drivers[0].Name {
			t.Errorf("%s with the component snapshots has the classes %v", overlay, o.snapshotClasses)
		}
	}
}

// TestLVM: both programs have lvm and share its locks on the node.
func TestLVM(t *testing.T) {
	pod := parse(t, combination{"local", []string{"lvm"}}.render(t)).pods["DaemonSet/cloudblock-node"]
	programs := 0
	for _, c := range pod.Containers {
		if !withLVM(c) {
			continue
		}
		programs++
		if want := []string{"/cloudblock-" + c.Name}; !slices.Equal(c.Command, want) {
			t.Errorf("container %s runs %v, want %v", c.Name, c.Command, want)
		}
		for _, path := range []string{"/dev", "/etc/lvm", "/run/lock/lvm", "/run/lvm", "/run/cloudblock-csi"} {
			if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path && nodesFolder(pod, m.Name) == path }) {
				t.Errorf("container %s has not the node's %s", c.Name, path)
			}
		}
		if s := c.SecurityContext; s.Privileged == nil || !*s.Privileged || s.Capabilities != nil || s.AllowPrivilegeEscalation != nil {
			t.Errorf("container %s: %+v, want it to be privileged and nothing that contradicts it", c.Name, s)
		}
	}
	if programs != 2 {
		t.Errorf("%d containers have lvm, want both programs", programs)
	}
}

// TestKubeletDir: each path of the kubelet is in its folder, and the folder is inside the container where it is outside.
func TestKubeletDir(t *testing.T) {
	for _, overlay := range overlays(t) {
		o := parse(t, combination{overlay, []string{"kubelet-dir"}}.render(t))
		pod := o.pods["DaemonSet/cloudblock-node"]
		checkSocket(t, otherKubelet, o.drivers[0].Name, pod)
		if o.settings["KUBELET_DIR"] != otherKubelet {
			t.Errorf("%s: the programs take %q for the kubelet's folder", overlay, o.settings["KUBELET_DIR"])
		}
		var mounts []corev1.VolumeMount
		for _, c := range pod.Containers {
			mounts = append(mounts, c.VolumeMounts...)
		}
		below := 0
		for _, v := range pod.Volumes {
			if v.HostPath != nil && strings.Contains(v.HostPath.Path, "kubelet") {
				below++
				if !strings.HasPrefix(v.HostPath.Path, otherKubelet+"/") {
					t.Errorf("%s: %s is still %s", overlay, v.Name, v.HostPath.Path)
				}
			}
			for _, m := range mounts {
				if m.Name == v.Name && (m.Name == "pods-dir" || m.Name == "staging-dir") && m.MountPath != v.HostPath.Path {
					t.Errorf("%s: %s is %s outside and %s inside", overlay, m.Name, v.HostPath.Path, m.MountPath)
				}
			}
		}
		if below != 4 {
			t.Errorf("%s: %d folders of the kubelet, want 4", overlay, below)
		}
	}
}

// combinations are every overlay with each component alone, with all of them, and with all in the other order.
func combinations(t *testing.T) []combination {
	t.Helper()
	var found []combination
	for _, overlay := range overlays(t) {
		all := available(t, overlay)
		if len(all) < 3 {
			t.Fatalf("found only the components %v of %s", all, overlay)
		}
		for _, one := range all {
			found = append(found, combination{overlay, []string{one}})
		}
		reversed := slices.Clone(all)
		slices.Reverse(reversed)
		found = append(found, combination{overlay, all}, combination{overlay, reversed})
	}
	return found
}

// render writes the overlay as docs/customize.md does, and renders it.
func (c combination) render(t *testing.T) []byte {
	t.Helper()
	rendering.Lock()
	defer rendering.Unlock()
	if out, done := rendered[c.name()]; done {
		return out
	}
	dir := t.TempDir()
	from := func(path ...string) string {
		return relative(t, dir, filepath.Join(append([]string{deploy}, path...)...))
	}
	text := fmt.Sprintf("kind: Kustomization\nresources: [%s]\nconfigMapGenerator:\n- name: cloudblock-settings\n"+
		"  namespace: cloudblock-%s\n  literals: [LOG_LEVEL=debug, KUBELET_DIR=%s]\ncomponents:\n", from("overlays", c.overlay), c.overlay, otherKubelet)
	for _, component := range c.components {
		path := from("components", component)
		if _, err := os.Stat(filepath.Join(deploy, "overlays", c.overlay, component)); err == nil {
			path = from("overlays", c.overlay, component)
		}
		text += "- " + path + "\n"
	}
	must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600))
	rendered[c.name()] = build(t, dir)
	return rendered[c.name()]
}

// newer are the components that need a newer Kubernetes than the oldest, by an overlay that takes them, and what the
// oldest lacks.
var newer = map[string]struct{ overlay, lacks string }{
	"source-node":      {"local", "MutatingAdmissionPolicy"},
	"node-allocatable": {"digitalocean", "nodeAllocatableUpdatePeriodSeconds"},
	"driver-required":  {"linode", "preventPodSchedulingIfMissing"},
}

// TestTheOldestKubernetesTakesThem: every overlay and combination, but for the components that need a newer one.
func TestTheOldestKubernetesTakesThem(t *testing.T) {
	program := filepath.Join(t.TempDir(), "oldest")
	expect.Run(t, "go", "-C", "oldest", "build", "-o", program, ".")
	check := func(name string, manifests []byte, lacks string) {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Stdin = bytes.NewReader(manifests)
		if out, err := cmd.CombinedOutput(); (err == nil) != (lacks == "") || !strings.Contains(string(out), lacks) {
			t.Errorf("%s: %v, want that it lacks %q\n%s", name, err, lacks, out)
		}
	}
	for name, dir := range sets() {
		check(name, render(t, dir), "")
	}
	for _, c := range combinations(t) {
		c.components = slices.DeleteFunc(c.components, func(name string) bool { return newer[name].overlay != "" })
		check(c.name(), c.render(t), "")
	}
	if t.Failed() {
		return
	}
	for name, is := range newer {
		check("the component "+name+", which needs a newer one", combination{is.overlay, []string{name}}.render(t), is.lacks)
	}
}

// TestChangedBlocks: one address reaches the sidecar of the client's own node alone, over TLS, and a node without the certificate still
// runs the driver.
func TestChangedBlocks(t *testing.T) {
	o := parse(t, combination{"local", []string{"changed-blocks"}}.render(t))
	if len(o.services) != 1 || o.services[0].Spec.InternalTrafficPolicy == nil || *o.services[0].Spec.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyLocal {
		t.Fatalf("the services are %+v, want one for the node of its client", o.services)
	}
	pod, service := o.pods["DaemonSet/cloudblock-node"], o.services[0]
	at := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "csi-snapshot-metadata" })
	if at < 0 || service.Namespace != "cloudblock-local" || service.Spec.Selector["app.kubernetes.io/name"] != "cloudblock-node" {
		t.Fatalf("the service %+v selects no container", service)
	}
	c := pod.Containers[at]
	if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == service.Spec.Ports[0].TargetPort.StrVal }) {
		t.Errorf("the service leads to port %s, and the sidecar has %+v", service.Spec.Ports[0].TargetPort.StrVal, c.Ports)
	}
	mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "certificates" && m.ReadOnly })
	optional := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.Name == "certificates" && v.Secret != nil && v.Secret.Optional != nil && *v.Secret.Optional
	})
	if !mounted || !optional {
		t.Errorf("the certificate is mounted: %v, and optional: %v", mounted, optional)
	}
	// Clients are anywhere, and the policy of the metrics selects the pods too.
	for _, p := range parse(t, combination{"local", []string{"changed-blocks", "monitoring"}}.render(t)).networkPolicies {
		if !slices.ContainsFunc(p.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
			return len(rule.From) == 0 && len(rule.Ports) == 1 && rule.Ports[0].Port.StrVal == service.Spec.Ports[0].TargetPort.StrVal
		}) {
			t.Errorf("the policy %s keeps clients from the port %s", p.Name, service.Spec.Ports[0].TargetPort.StrVal)
		}
	}
}
