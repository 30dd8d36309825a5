//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// nodeVolumeLimit: a node takes as many volumes as it has slots without its own disks, also when the node program starts while
// two volumes are attached.
func (v *vendored) nodeVolumeLimit(ctx context.Context) error {
	node := v.env.nodes[0]
	disks, err := ownDisks()
	if err != nil {
		return err
	}
	want := linodeSlots - disks
	if err := v.wantLimit(ctx, node, want); err != nil {
		return err
	}
	if err := v.class(ctx, "Delete", nil); err != nil {
		return err
	}
	if err := v.Create(ctx, v.statefulSetOf(2, node)); err != nil {
		return err
	}
	for _, name := range []string{"sts-0", "sts-1"} {
		if _, err := v.UntilReady(ctx, name, patience); err != nil {
			return err
		}
	}
	nodes := v.env.driver
	if _, err := nodes.Run(ctx, "rollout", "restart", "daemonset/cloudblock-node"); err != nil {
		return err
	}
	if _, err := nodes.Run(ctx, "rollout", "status", "daemonset/cloudblock-node", "--timeout="+patience.String()); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(reregistered):
	}
	if err := v.wantLimit(ctx, node, want); err != nil {
		return err
	}
	if err := v.Delete(ctx, "statefulset", "sts"); err != nil {
		return err
	}
	return v.gone(ctx)
}

// ownDisks counts the disks of this machine that are those of a Linode to boot and to swap from: the vendor of these is QEMU.
func ownDisks() (n int64, err error) {
	files, err := filepath.Glob("/sys/block/*/device/vendor")
	for _, file := range files {
		vendor, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		if strings.TrimSpace(string(vendor)) == "QEMU" {
			n++
		}
	}
	return n, err
}

func (v *vendored) wantLimit(ctx context.Context, node string, want int64) error {
	n, err := kube.Get[kube.CSINode](ctx, v.Client, "csinode", node)
	if got := n.Count(linodeDriver); err == nil && got != want {
		err = fmt.Errorf("%s takes %d volumes, want %d", node, got, want)
	}
	return err
}

// basicFilesystem: the life of a volume.
func (v *vendored) basicFilesystem(ctx context.Context) error {
	p, err := v.usual(ctx, nil)
	if err == nil {
		err = v.write(ctx, p)
	}
	return v.finish(ctx, p, err)
}

// filesystemOfThePod: a pod makes its own ext4 on a raw block volume. The second container names what it finds there.
func (v *vendored) filesystemOfThePod(ctx context.Context) error {
	pod := blockPod()
	spec := pod["spec"].(map[string]any)
	devices := mainOf(pod)["volumeDevices"]
	tool := func(name string, command ...string) map[string]any {
		return map[string]any{"name": name, "image": v.image, "command": append(command, "/dev/block"), "volumeDevices": devices}
	}
	spec["initContainers"] = []any{
		tool("mkfs", "mkfs.ext4", "-q", "-b", "2048", "-L", "csi-volume", "-F"),
		tool("blkid", "blkid", "-p", "-o", "export"),
	}
	p, err := v.start(ctx, nil, v.blockClaim(), pod)
	if err != nil {
		return err
	}
	found, err := v.Run(ctx, "logs", "e2e-pod", "--container=blkid")
	if err == nil && (!strings.Contains(found, "TYPE=ext4\n") || !strings.Contains(found, "BLOCK_SIZE=2048\n")) {
		err = fmt.Errorf("the device has, according to blkid, %q, want an ext4 with blocks of 2048 bytes", found)
	}
	return v.finish(ctx, p, err)
}

// blockClaim is the scenario's claim of a raw block volume, and blockPod a pod that has it.
func (v *vendored) blockClaim() map[string]any {
	claim := v.claim()
	claim["spec"].(map[string]any)["volumeMode"] = "Block"
	return claim
}

func blockPod() map[string]any { return devicePod("e2e-pod", "data", "/dev/block") }

// xfs: the class names the filesystem by the parameter without a prefix.
func (v *vendored) xfs(ctx context.Context) error {
	p, err := v.usual(ctx, map[string]string{"fstype": "xfs"})
	if err == nil {
		err = v.wantMount(ctx, func(filesystem string, _ []string) bool { return filesystem == "xfs" })
	}
	return v.finish(ctx, p, err)
}

// wantMount checks what the scenario's pod has at /data.
func (v *vendored) wantMount(ctx context.Context, wanted func(filesystem string, options []string) bool) error {
	text, err := v.Exec(ctx, "e2e-pod", "", "grep ' /data ' /proc/mounts")
	if err != nil {
		return err
	}
	if fields := strings.Fields(text); len(fields) < 4 || !wanted(fields[2], strings.Split(fields[3], ",")) {
		return fmt.Errorf("the pod has mounted %q, which is not what the scenario wants", text)
	}
	return nil
}

// encryptedByTheCloud: the class asks for encryption at rest.
func (v *vendored) encryptedByTheCloud(ctx context.Context) error {
	p, err := v.usual(ctx, map[string]string{linodeDriver + "/encrypted": "true"})
	if err == nil {
		err = v.untilMade(ctx, "the volume is encrypted", func(made []linodeVolume) bool { return len(made) == 1 && made[0].Encrypted })
	}
	if err == nil {
		err = v.write(ctx, p)
	}
	return v.finish(ctx, p, err)
}

// readOnly: a pod that mounts its volume read-only cannot write.
func (v *vendored) readOnly(ctx context.Context) error {
	pod := newPod("e2e-pod", "data", "")
	mainOf(pod)["volumeMounts"].([]any)[0].(map[string]any)["readOnly"] = true
	p, err := v.start(ctx, nil, v.claim(), pod)
	if err != nil {
		return err
	}
	_, err = v.Exec(ctx, "e2e-pod", "", "touch /data/testfile")
	var refused *kube.Error
	if !errors.As(err, &refused) || !strings.Contains(refused.Stderr, "Read-only file system") {
		return errors.Join(errors.New("a write was not refused because of a read-only filesystem"), err)
	}
	if err := v.wantMount(ctx, func(_ string, options []string) bool { return slices.Contains(options, "ro") }); err != nil {
		return err
	}
	return v.finish(ctx, p, nil)
}

// statefulSet: the pod of a StatefulSet, whose user is not root, is deleted, and the next one has its data.
func (v *vendored) statefulSet(ctx context.Context) error {
	if err := v.class(ctx, "Delete", nil); err != nil {
		return err
	}
	p, err := v.created(ctx, "sts-0", v.statefulSetOf(1, ""))
	if err == nil {
		err = v.write(ctx, p)
	}
	if err == nil {
		err = v.Delete(ctx, "pod", "sts-0")
	}
	if err != nil {
		return err
	}
	p, err = v.untilNext(ctx, p, func(kube.Pod) bool { return true })
	if err == nil {
		err = v.wantData(ctx, p, v.sums["sts-0"])
	}
	return v.finishSet(ctx, p, err)
}

// untilNext waits until a pod of the same name has taken a pod's place, is ready, and is as wanted.
func (v *vendored) untilNext(ctx context.Context, before kube.Pod, wanted func(kube.Pod) bool) (kube.Pod, error) {
	var p kube.Pod
	err := v.Until(ctx, "the next pod "+before.Metadata.Name+" is ready", patience, func(ctx context.Context) (bool, string, error) {
		pods, err := kube.List[kube.Pod](ctx, v.Client, "pods", "--field-selector", "metadata.name="+before.Metadata.Name)
		if err != nil || len(pods) == 0 {
			return false, "there is none", err
		}
		p = pods[0]
		return p.Metadata.UID != before.Metadata.UID && p.Ready() && wanted(p), "on " + p.Spec.NodeName + ": " + p.State(), nil
	})
	return p, err
}

// sends lets the pods of the StatefulSet go to a node.
func (v *vendored) sends(ctx context.Context, node string) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:%q}}}}}`, hostname, node)
	_, err := v.Run(ctx, "patch", "statefulset", "sts", "--type", "merge", "--patch", patch)
	return err
}

// statefulSetOf returns a StatefulSet of the scenario's class whose pods run as a user that is not root, on a node if one is named.
func (v *vendored) statefulSetOf(replicas int, node string) map[string]any {
	spec := newPod("", "", node)["spec"].(map[string]any)
	delete(spec, "volumes")
	spec["securityContext"] = map[string]any{"runAsUser": 1001, "fsGroup": 1001}
	labels := map[string]string{"app": "sts"}
	claim := v.claim()
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": map[string]any{"name": "sts"},
		"spec": map[string]any{
			"serviceName": "sts", "replicas": replicas, "selector": map[string]any{"matchLabels": labels},
			"template":             map[string]any{"metadata": map[string]any{"labels": labels}, "spec": spec},
			"volumeClaimTemplates": []any{map[string]any{"metadata": claim["metadata"], "spec": claim["spec"]}},
		},
	}
}
