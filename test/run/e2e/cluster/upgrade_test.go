//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/e2e/cluster/kube"
)

// oldTag is the tag that `go run ./test/run/cluster old` gives the images of an older build.
const oldTag = "old"

// upgrade is a story in which the driver's images change while a pod writes to its volume. Only the images change: the
// manifests are those of this clone.
type upgrade struct {
	*story
	own     installation
	writing writer
}

// stages are in order. What each leaves is where the next begins.
var stages = []struct {
	name string
	run  func(*upgrade, context.Context) error
}{
	{"the old build is installed and in use", (*upgrade).oldBuild},
	{"new controller, old node", func(u *upgrade, ctx context.Context) error { return u.change(ctx, "controller", false) }},
	{"new controller, new node", (*upgrade).newBuild},
	{"rollback: old controller, new node", func(u *upgrade, ctx context.Context) error { return u.change(ctx, "controller", true) }},
	{"rollback: old controller, old node", (*upgrade).back},
	{"uninstalled while volumes are in use", (*upgrade).uninstall},
	{"installed again", (*upgrade).install},
	{"the same volume is mounted again, and nothing is left", func(u *upgrade, ctx context.Context) error { return u.wholeWriter(ctx, u.writing) }},
}

// TestUpgrade upgrades, rolls back, uninstalls and installs the driver while a pod writes to its volume. At each stage
// another volume is created, attached, grown and deleted, once during the rollout and once after it.
func TestUpgrade(t *testing.T) {
	s := begin(t, "upgrade")
	u := &upgrade{story: s, own: s.env.installation(t)}
	t.Cleanup(func() {
		u.own.dump(t, s.Namespace)
		u.own.restore(t)
	})
	for _, stage := range stages {
		s.stage(t, stage.name, func(ctx context.Context) error { return stage.run(u, ctx) })
	}
}

// oldBuild installs it, and a pod that writes from now on.
func (u *upgrade) oldBuild(ctx context.Context) error {
	for _, container := range []string{"controller", "node"} {
		if err := u.swap(ctx, container, old(u.own.fresh[container])); err != nil {
			return err
		}
	}
	var err error
	if u.writing, err = u.startWriter(ctx, "writer"); err != nil {
		return err
	}
	return u.check(ctx, "first")
}

// change gives one of the containers another build.
func (u *upgrade) change(ctx context.Context, container string, back bool) error {
	image, name := u.own.fresh[container], "new-"+container
	if back {
		image, name = old(image), "old-"+container
	}
	during := make(chan error, 1)
	go func() { during <- u.life(ctx, name+"-during") }()
	err := u.swap(ctx, container, image)
	if lived := <-during; err == nil && lived != nil {
		err = fmt.Errorf("during the rollout: %w", lived)
	}
	if err != nil {
		return err
	}
	return u.check(ctx, name)
}

// newBuild completes the upgrade. A volume that the new build has made stays.
func (u *upgrade) newBuild(ctx context.Context) error {
	if err := u.change(ctx, "node", false); err != nil {
		return err
	}
	_, err := u.filled(ctx, claimOptions{name: "kept", class: u.env.classes["xfs"], size: u.env.round(512 * mib)}, "")
	return err
}

// back completes the rollback. The old build mounts what the new one has made.
func (u *upgrade) back(ctx context.Context) error {
	if err := u.change(ctx, "node", true); err != nil {
		return err
	}
	p, err := u.renewed(ctx, "kept", "")
	if err != nil {
		return err
	}
	if err := u.wantData(ctx, p, u.sums["kept"]); err != nil {
		return err
	}
	return u.remove(ctx, "kept")
}

// check is what every stage ends with: a volume lives its whole life, and the writer has gone on.
func (u *upgrade) check(ctx context.Context, name string) error {
	if err := u.life(ctx, name); err != nil {
		return err
	}
	if err := u.goesOn(ctx, u.writing); err != nil {
		return err
	}
	return u.env.nothingLeft(ctx)
}

// old is an image's name with the tag of the old build.
func old(image string) string {
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		image = image[:i]
	}
	return image + ":" + oldTag
}

// swap sets the image of a container of the driver and waits until every pod runs it.
func (u *upgrade) swap(ctx context.Context, container, image string) error {
	d := u.env.driver
	for _, w := range d.workloads {
		if !slices.ContainsFunc(w.Spec.Template.Spec.Containers, func(c kube.Container) bool { return ours(c) && c.Name == container }) {
			continue
		}
		name := w.Kind + "/" + w.Metadata.Name
		if _, err := d.Run(ctx, "set", "image", name, container+"="+image); err != nil {
			return err
		}
		if _, err := d.Run(ctx, "rollout", "status", name, "--timeout="+patience.String()); err != nil {
			return err
		}
		if err := u.own.runs(ctx, w, container, image); err != nil {
			return err
		}
	}
	return nil
}

// uninstall removes the driver. The writer goes on, its volume stays, and what is deleted meanwhile is still there.
func (u *upgrade) uninstall(ctx context.Context) error {
	p, err := u.placed(ctx, claimOptions{name: "ending", class: u.env.classes["ext4"], size: u.env.round(128 * mib)}, "")
	if err != nil {
		return err
	}
	claim, err := u.claimOf(ctx, p)
	if err != nil {
		return err
	}
	if err := u.own.remove(ctx); err != nil {
		return err
	}
	for _, kind := range []string{"pod", "pvc"} {
		if err := u.Delete(ctx, kind, "ending"); err != nil {
			return err
		}
	}
	if err := u.goesOn(ctx, u.writing); err != nil {
		return err
	}
	if err := u.stays(ctx, claim.Spec.VolumeName); err != nil {
		return err
	}
	return u.stays(ctx, u.writing.volume)
}

// stays checks that the cluster has a volume and that what really holds the volumes has it too.
func (u *upgrade) stays(ctx context.Context, volume string) error {
	pv, err := kube.Get[kube.Volume](ctx, u.Client, "pv", volume)
	if err != nil {
		return err
	}
	if pv.Spec.CSI == nil {
		return fmt.Errorf("volume %s has no handle", volume)
	}
	there, err := u.holds(ctx, pv.Spec.CSI.VolumeHandle)
	if err == nil && !there {
		err = fmt.Errorf("volume %s of the cluster is gone without the driver", pv.Spec.CSI.VolumeHandle)
	}
	return err
}

// holds reports whether a volume is there, without the driver's help. Of a pool, which the driver lists, it is the loop
// device that says so.
func (u *upgrade) holds(ctx context.Context, handle string) (bool, error) {
	if u.env.nodeBound {
		image := handle[strings.LastIndex(handle, "/"):] + ".img"
		bound, err := loops(func(file string) bool { return strings.HasSuffix(file, image) })
		return len(bound) > 0, err
	}
	held, wrong, err := u.env.store.look(ctx)
	if err == nil && len(wrong) > 0 {
		err = fmt.Errorf("without the driver: %s", strings.Join(wrong, "; "))
	}
	return slices.ContainsFunc(held, func(h thing) bool { return h.id == handle }), err
}

// install applies the manifests again. What was deleted without the driver goes now: the kubelet repeats its unmount after
// up to 2 min, and the provisioner its delete of what is still attached after as long again.
func (u *upgrade) install(ctx context.Context) error {
	volumes, err := kube.List[kube.Volume](ctx, u.Client, "pv")
	if err != nil {
		return err
	}
	if err := u.own.deploy(ctx); err != nil {
		return err
	}
	for _, v := range volumes {
		if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.Namespace != u.Namespace || v.Metadata.Name == u.writing.volume {
			continue
		}
		if err := u.UntilGone(ctx, "pv", v.Metadata.Name, 2*patience); err != nil {
			return err
		}
	}
	return u.check(ctx, "again")
}
