//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// hostname is the label that every node has alone.
const hostname = "kubernetes.io/hostname"

// The data of a pod are this many MiB, in one file or at the beginning of its device.
const amount = "24"

// write writes random data to a pod's volume and remembers its checksum.
func (s *story) write(ctx context.Context, p kube.Pod) error {
	_, path, raw := p.Claimed()
	if path == "" {
		return fmt.Errorf("pod %s has no volume", p.Metadata.Name)
	}
	if !raw {
		path += "/data"
	}
	script := "dd if=/dev/urandom of=" + path + " bs=1M count=" + amount + " conv=fsync 2>/dev/null; sync; " + sumOf(path)
	text, err := s.Exec(ctx, p.Metadata.Name, "", script)
	if err != nil {
		return fmt.Errorf("write the data of pod %s: %w", p.Metadata.Name, err)
	}
	s.sums[p.Metadata.Name], err = checksum(text)
	return err
}

// sum returns the checksum of the data in a pod's volume.
func (s *story) sum(ctx context.Context, p kube.Pod) (string, error) {
	_, path, raw := p.Claimed()
	if !raw {
		path += "/data"
	}
	text, err := s.Exec(ctx, p.Metadata.Name, "", sumOf(path))
	if err != nil {
		return "", fmt.Errorf("read the data of pod %s: %w", p.Metadata.Name, err)
	}
	return checksum(text)
}

func sumOf(path string) string {
	return "dd if=" + path + " bs=1M count=" + amount + " 2>/dev/null | sha256sum"
}

func checksum(text string) (string, error) {
	fields := strings.Fields(text)
	if len(fields) < 1 || len(fields[0]) != 64 {
		return "", fmt.Errorf("sha256sum printed %q", text)
	}
	return fields[0], nil
}

// wantData compares the data in a pod's volume with what must be there.
func (s *story) wantData(ctx context.Context, p kube.Pod, want string) error {
	got, err := s.sum(ctx, p)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("the data of pod %s has the checksum %s, want %s", p.Metadata.Name, got, want)
	}
	return nil
}

// wantFilesystem checks that a pod's filesystem fills a volume of a size.
func (s *story) wantFilesystem(ctx context.Context, p kube.Pod, size int64) error {
	_, path, _ := p.Claimed()
	text, err := s.Exec(ctx, p.Metadata.Name, "", "df -Pk "+path)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	fields := strings.Fields(lines[len(lines)-1])
	if len(fields) < 2 {
		return fmt.Errorf("df printed %q", text)
	}
	kib, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return err
	}
	if got := kib << 10; got < size/100*85 || got > size {
		return fmt.Errorf("the filesystem of pod %s has %d bytes, want nearly the %d of its volume", p.Metadata.Name, got, size)
	}
	return nil
}

// wantFull checks that the filesystem of a pod fills its claim's volume.
func (s *story) wantFull(ctx context.Context, p kube.Pod) error {
	claim, err := s.claimOf(ctx, p)
	if err != nil {
		return err
	}
	return s.wantFilesystem(ctx, p, claim.Bytes())
}

// grow asks for a larger claim.
func (s *story) grow(ctx context.Context, claim string, size int64) error {
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":"%d"}}}}`, size)
	_, err := s.Run(ctx, "patch", "pvc", claim, "--type", "merge", "--patch", patch)
	return err
}

// claimOptions describe a claim of the tests' own.
type claimOptions struct {
	name, class string
	size        int64
	// from is a claim to clone.
	from string
	mode string
}

func newClaim(o claimOptions) map[string]any {
	if o.mode == "" {
		o.mode = "ReadWriteOnce"
	}
	spec := map[string]any{
		"storageClassName": o.class, "accessModes": []string{o.mode},
		"resources": map[string]any{"requests": map[string]any{"storage": strconv.FormatInt(o.size, 10)}},
	}
	if o.from != "" {
		spec["dataSource"] = map[string]any{"kind": "PersistentVolumeClaim", "name": o.from}
	}
	return map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": o.name}, "spec": spec}
}

// newPod is a pod of the tests' own with a claim at /data; a node may be named.
func newPod(name, claim, node string) map[string]any {
	spec := map[string]any{
		"terminationGracePeriodSeconds": 1,
		"containers": []any{map[string]any{
			"name": "main", "image": busybox, "command": []string{"sleep", "1000000"},
			"volumeMounts": []any{map[string]any{"name": "data", "mountPath": "/data"}},
		}},
		"volumes": []any{map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": claim}}},
	}
	if node != "" {
		spec["nodeSelector"] = map[string]any{hostname: node}
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name}, "spec": spec}
}

// mainOf is the container of a pod of the tests' own.
func mainOf(pod map[string]any) map[string]any {
	return pod["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
}

// devicePod is such a pod with the device of a claim.
func devicePod(name, claim, path string) map[string]any {
	pod := newPod(name, claim, "")
	main := mainOf(pod)
	delete(main, "volumeMounts")
	main["volumeDevices"] = []any{map[string]any{"name": "data", "devicePath": path}}
	return pod
}

// place creates a claim and a pod of the same name on it.
func (s *story) place(ctx context.Context, o claimOptions, node string) error {
	if err := s.Create(ctx, newClaim(o)); err != nil {
		return err
	}
	return s.Create(ctx, newPod(o.name, o.name, node))
}

// placed does the same and waits until the pod is ready.
func (s *story) placed(ctx context.Context, o claimOptions, node string) (kube.Pod, error) {
	if err := s.place(ctx, o, node); err != nil {
		return kube.Pod{}, err
	}
	return s.UntilReady(ctx, o.name, patience)
}

// filled does the same and writes data to the volume.
func (s *story) filled(ctx context.Context, o claimOptions, node string) (kube.Pod, error) {
	p, err := s.placed(ctx, o, node)
	if err == nil {
		err = s.write(ctx, p)
	}
	return p, err
}

// renewed ends a pod on the claim of its name and starts another in its place; a node may be named.
func (s *story) renewed(ctx context.Context, name, node string) (kube.Pod, error) {
	if err := s.end(ctx, name); err != nil {
		return kube.Pod{}, err
	}
	if err := s.Create(ctx, newPod(name, name, node)); err != nil {
		return kube.Pod{}, err
	}
	return s.UntilReady(ctx, name, patience)
}

// claimOf returns the claim of a pod.
func (s *story) claimOf(ctx context.Context, p kube.Pod) (kube.Claim, error) {
	name, _, _ := p.Claimed()
	return kube.Get[kube.Claim](ctx, s.Client, "pvc", name)
}

// bound returns a claim and its volume.
func (s *story) bound(ctx context.Context, claim string) (kube.Claim, kube.Volume, error) {
	c, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", claim)
	if err != nil {
		return c, kube.Volume{}, err
	}
	pv, err := kube.Get[kube.Volume](ctx, s.Client, "pv", c.Spec.VolumeName)
	return c, pv, err
}

// remove ends pods and their claims of the same names, and waits until the volumes are gone.
func (s *story) remove(ctx context.Context, names ...string) error {
	var volumes []string
	for _, name := range names {
		claim, err := kube.Get[kube.Claim](ctx, s.Client, "pvc", name)
		if err != nil {
			return err
		}
		if claim.Spec.VolumeName != "" {
			volumes = append(volumes, claim.Spec.VolumeName)
		}
	}
	for _, kind := range []string{"pod", "pvc"} {
		if err := s.Delete(ctx, append([]string{kind}, names...)...); err != nil {
			return err
		}
	}
	for _, v := range volumes {
		if err := s.UntilGone(ctx, "pv", v, patience); err != nil {
			return err
		}
	}
	return nil
}
