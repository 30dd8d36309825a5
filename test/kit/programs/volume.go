package programs

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Claim is what a user asks for.
type Claim struct {
	// Name of the request, such as "pvc-1".
	Name string
	// Filesystem is ext4 or xfs; empty means a raw block volume.
	Filesystem string
	// Size in bytes.
	Size int64
	// Parameters of the StorageClass.
	Parameters map[string]string
	// Source is what the volume is made from: see Snapshot.Source and Volume.Source. nil means blank.
	Source *csi.VolumeContentSource
}

// Volume is a volume on its way through its life, and the paths a kubelet would use for it.
type Volume struct {
	Claim
	ID      string
	Context map[string]string
	Size    int64
	// Published is what the last attach told.
	Published map[string]string
	// Staging and Target are the kubelet's two paths.
	Staging, Target string

	pair *Pair
}

// Capability returns the CSI capability of the claim.
func (c Claim) Capability() *csi.VolumeCapability {
	answer := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	if c.Filesystem == "" {
		answer.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		answer.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: c.Filesystem}}
	}
	return answer
}

// Create does what the provisioner does, for a pod on the pair's machine.
func (p *Pair) Create(ctx context.Context, claim Claim) (*Volume, error) {
	here := []*csi.Topology{p.node.GetAccessibleTopology()}
	answer, err := csi.NewControllerClient(p.Controller.Conn).CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:                      claim.Name,
		CapacityRange:             &csi.CapacityRange{RequiredBytes: claim.Size},
		VolumeCapabilities:        []*csi.VolumeCapability{claim.Capability()},
		Parameters:                claim.Parameters,
		VolumeContentSource:       claim.Source,
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: here, Preferred: here},
	})
	if err != nil {
		return nil, err
	}
	made := answer.GetVolume()
	v := &Volume{Claim: claim, ID: made.GetVolumeId(), Context: made.GetVolumeContext(), Size: made.GetCapacityBytes()}
	return v.On(p), nil
}

// On returns the volume as the machine of another pair sees it. Nothing is attached or mounted there yet.
func (v *Volume) On(p *Pair) *Volume {
	there := *v
	there.Staging = filepath.Join(p.opts.kubeletDir(), "staging", v.Name)
	there.Target = filepath.Join(p.opts.kubeletDir(), "pods", v.Name, "mount")
	there.Published, there.pair = nil, p
	return &there
}

// Node returns the name of the machine whose view of the volume this is.
func (v *Volume) Node() string { return v.pair.NodeID() }

// Source names the volume as what a clone is made from.
func (v *Volume) Source() *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.ID},
	}}
}

// Attach does what the attacher does: it attaches the volume to the pair's machine. There is nothing to
// do where the controller does not state that it attaches volumes.
func (v *Volume) Attach(ctx context.Context) error {
	if !v.pair.states.attaches {
		return nil
	}
	answer, err := csi.NewControllerClient(v.pair.Controller.Conn).ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: v.ID, NodeId: v.pair.NodeID(), VolumeCapability: v.Capability(), VolumeContext: v.Context,
	})
	if err == nil {
		v.Published = answer.GetPublishContext()
	}
	return err
}

// Detach does what the attacher does when no pod on the pair's machine needs the volume any more.
func (v *Volume) Detach(ctx context.Context) error {
	if !v.pair.states.attaches {
		return nil
	}
	_, err := csi.NewControllerClient(v.pair.Controller.Conn).ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
		VolumeId: v.ID, NodeId: v.pair.NodeID(),
	})
	return err
}

// Stage does what the kubelet does first on a node: one call per volume.
func (v *Volume) Stage(ctx context.Context) error {
	if err := os.MkdirAll(v.Staging, 0o750); err != nil {
		return err
	}
	_, err := csi.NewNodeClient(v.pair.Node.Conn).NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: v.ID, StagingTargetPath: v.Staging,
		VolumeCapability: v.Capability(), VolumeContext: v.Context, PublishContext: v.Published,
	})
	return err
}

// Publish does what the kubelet does for each pod.
func (v *Volume) Publish(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(v.Target), 0o750); err != nil {
		return err
	}
	_, err := csi.NewNodeClient(v.pair.Node.Conn).NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: v.ID, StagingTargetPath: v.Staging, TargetPath: v.Target,
		VolumeCapability: v.Capability(), VolumeContext: v.Context, PublishContext: v.Published,
	})
	return err
}

// resizerTimeout is how long Expand waits for the controller. Where the machine has to let go of the volume first, the
// controller waits a part of it.
const resizerTimeout = 8 * time.Second

// Expand does what the resizer does, and then the kubelet where the controller says so or grows nothing
// itself. It returns the size that the last of them reports.
func (v *Volume) Expand(ctx context.Context, size int64) (int64, error) {
	if v.pair.states.grows {
		patient, cancel := context.WithTimeout(ctx, resizerTimeout)
		defer cancel()
		answer, err := csi.NewControllerClient(v.pair.Controller.Conn).ControllerExpandVolume(patient, &csi.ControllerExpandVolumeRequest{
			VolumeId: v.ID, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: v.Capability(),
		})
		if err != nil || !answer.GetNodeExpansionRequired() {
			return answer.GetCapacityBytes(), err
		}
	}
	answer, err := csi.NewNodeClient(v.pair.Node.Conn).NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: v.ID, VolumePath: v.Target, StagingTargetPath: v.Staging,
		CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: v.Capability(),
	})
	return answer.GetCapacityBytes(), err
}

// Stats asks for the statistics of the published volume.
func (v *Volume) Stats(ctx context.Context) (map[csi.VolumeUsage_Unit]*csi.VolumeUsage, error) {
	answer, err := csi.NewNodeClient(v.pair.Node.Conn).NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{
		VolumeId: v.ID, VolumePath: v.Target, StagingTargetPath: v.Staging,
	})
	usage := map[csi.VolumeUsage_Unit]*csi.VolumeUsage{}
	for _, u := range answer.GetUsage() {
		usage[u.GetUnit()] = u
	}
	return usage, err
}

// Unpublish takes the volume from the pod.
func (v *Volume) Unpublish(ctx context.Context) error {
	_, err := csi.NewNodeClient(v.pair.Node.Conn).NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{
		VolumeId: v.ID, TargetPath: v.Target,
	})
	return err
}

// Unstage takes the volume from the node.
func (v *Volume) Unstage(ctx context.Context) error {
	_, err := csi.NewNodeClient(v.pair.Node.Conn).NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{
		VolumeId: v.ID, StagingTargetPath: v.Staging,
	})
	return err
}

// Delete does what the provisioner does when the claim is gone.
func (v *Volume) Delete(ctx context.Context) error {
	_, err := csi.NewControllerClient(v.pair.Controller.Conn).DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.ID})
	return err
}
