package kube

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Meta is what all objects have.
type Meta struct {
	Name              string
	Namespace         string
	UID               string
	Labels            map[string]string
	Annotations       map[string]string
	CreationTimestamp time.Time
	DeletionTimestamp *time.Time
}

// Object is any object.
type Object struct {
	Kind     string
	Metadata Meta
}

// Pod is a pod.
type Pod struct {
	Metadata Meta
	Spec     struct {
		NodeName   string
		Containers []Container
		Volumes    []struct {
			Name                  string
			PersistentVolumeClaim *struct{ ClaimName string }
		}
	}
	Status struct {
		Phase             string
		Reason            string
		Message           string
		Conditions        []Condition
		ContainerStatuses []struct {
			Name         string
			RestartCount int
			State        map[string]struct{ Reason, Message string }
		}
		VolumeHealth []Health
	}
}

// Health is what is wrong with a volume of a pod, by the name that the pod has for the volume, or with the storage of a driver, by
// the driver's name.
type Health struct {
	Name             string
	HealthConditions []Condition
}

// Health says what is wrong with a volume of the pod or with the storage of a driver; empty if nothing is.
func (h Health) String() string {
	var all []string
	for _, c := range h.HealthConditions {
		all = append(all, c.Status+" "+c.Reason)
	}
	return strings.Join(all, ", ")
}

// Container is a container of a pod.
type Container struct {
	Name    string
	Image   string
	Command []string
	Args    []string
	Env     []struct{ Name, Value string }
	Ports   []struct {
		Name          string
		ContainerPort int
	}
	VolumeMounts []struct{ Name, MountPath string }
	// VolumeDevices are the raw block volumes.
	VolumeDevices []struct{ Name, DevicePath string }
}

// Condition is one line of an object's state.
type Condition struct{ Type, Status, Reason, Message string }

// Ready says whether a pod is, and is to stay.
func (p Pod) Ready() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return p.Metadata.DeletionTimestamp == nil
		}
	}
	return false
}

// Restarts counts how often containers of the pod were started again.
func (p Pod) Restarts() int {
	n := 0
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

// Claimed returns the claim of the pod's first persistent volume, and where its first container sees
// it: a folder, or a device if raw says so.
func (p Pod) Claimed() (claim, path string, raw bool) {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim == nil || len(p.Spec.Containers) == 0 {
			continue
		}
		for _, m := range p.Spec.Containers[0].VolumeMounts {
			if m.Name == v.Name {
				return v.PersistentVolumeClaim.ClaimName, m.MountPath, false
			}
		}
		for _, d := range p.Spec.Containers[0].VolumeDevices {
			if d.Name == v.Name {
				return v.PersistentVolumeClaim.ClaimName, d.DevicePath, true
			}
		}
	}
	return "", "", false
}

// State is a word or two about the pod for a reader who waits.
func (p Pod) State() string {
	state := p.Status.Phase + " " + p.Status.Reason
	for _, c := range p.Status.Conditions {
		if c.Status == "False" && c.Message != "" {
			state += "; " + c.Message
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		for _, s := range c.State {
			if s.Reason != "" {
				state += "; " + c.Name + ": " + s.Reason + " " + s.Message
			}
		}
	}
	return state
}

// Claim is a PersistentVolumeClaim.
type Claim struct {
	Metadata Meta
	Spec     struct {
		StorageClassName string
		VolumeName       string
		VolumeMode       string
		Resources        struct{ Requests map[string]string }
	}
	Status struct {
		Phase                     string
		Capacity                  map[string]string
		Conditions                []Condition
		AllocatedResourceStatuses map[string]string
		// CurrentVolumeAttributesClassName is what the volume has, not what is asked for.
		CurrentVolumeAttributesClassName string
	}
}

// Bytes is the size that the claim really has; 0 as long as it has none.
func (c Claim) Bytes() int64 {
	n, err := Bytes(c.Status.Capacity["storage"])
	if err != nil {
		return 0
	}
	return n
}

// Waits reports whether a growth or a change of the claim is under way. Whether a pod uses the claim, which Kubernetes 1.37 adds as
// the condition Unused, is no such thing.
func (c Claim) Waits() bool {
	return len(c.Status.AllocatedResourceStatuses) > 0 ||
		slices.ContainsFunc(c.Status.Conditions, func(cond Condition) bool { return cond.Type != "Unused" })
}

// Stage says how far the claim's growth is: its size, what is under way, and its conditions without their
// messages.
func (c Claim) Stage() string {
	state := c.Status.Phase + " " + c.Status.Capacity["storage"]
	for _, s := range c.Status.AllocatedResourceStatuses {
		state += "; " + s
	}
	for _, cond := range c.Status.Conditions {
		state += "; " + cond.Type + "=" + cond.Status
	}
	return state
}

// State is all about the claim for a reader who waits.
func (c Claim) State() string {
	state := c.Stage()
	for _, cond := range c.Status.Conditions {
		if cond.Message != "" {
			state += "; " + cond.Type + " " + cond.Message
		}
	}
	return state
}

// Attachment is a VolumeAttachment.
type Attachment struct {
	Metadata Meta
	Spec     struct {
		NodeName string
		Source   struct{ PersistentVolumeName string }
	}
	Status struct{ Attached bool }
}

// Volume is a PersistentVolume.
type Volume struct {
	Metadata Meta
	Spec     struct {
		CSI      *struct{ Driver, VolumeHandle string }
		ClaimRef *struct{ Namespace, Name string }
		Capacity map[string]string
	}
	Status struct{ Phase string }
}

// Snapshot is a VolumeSnapshot.
type Snapshot struct {
	Metadata Meta
	Status   struct {
		ReadyToUse bool
		Error      *struct{ Message string }
	}
}

// SnapshotContent is a VolumeSnapshotContent.
type SnapshotContent struct {
	Metadata Meta
	Spec     struct {
		Driver            string
		VolumeSnapshotRef struct{ Namespace, Name string }
		Source            struct{ SnapshotHandle string }
	}
	Status struct{ SnapshotHandle string }
}

// Class is a StorageClass.
type Class struct {
	Metadata    Meta
	Provisioner string
	Parameters  map[string]string
}

// Capacity is a CSIStorageCapacity: how much room a class has somewhere.
type Capacity struct {
	Metadata         Meta
	StorageClassName string
	Capacity         string
	NodeTopology     struct{ MatchLabels map[string]string }
}

// CSINode is what the kubelet of a node knows of the drivers there.
type CSINode struct {
	Spec struct {
		Drivers []struct {
			Name        string
			Allocatable struct{ Count int64 }
		}
	}
	Status struct{ StorageHealth []Health }
}

// CSIDriver is what Kubernetes knows of a driver.
type CSIDriver struct {
	Spec struct {
		PreventPodSchedulingIfMissing bool
	}
}

// Has says whether a driver is registered on the node.
func (n CSINode) Has(driver string) bool {
	for _, d := range n.Spec.Drivers {
		if d.Name == driver {
			return true
		}
	}
	return false
}

// Count is how many volumes of a driver the node takes; 0 if it says no number.
func (n CSINode) Count(driver string) int64 {
	for _, d := range n.Spec.Drivers {
		if d.Name == driver {
			return d.Allocatable.Count
		}
	}
	return 0
}

// Node is a node.
type Node struct {
	Metadata Meta
	Spec     struct{ Unschedulable bool }
	Status   struct{ Conditions []Condition }
}

// Ready says whether a node is.
func (n Node) Ready() bool {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// Event is what a component had to say about an object.
type Event struct {
	Type, Reason, Message string
	InvolvedObject        struct{ Kind, Name string }
}

// Workload is a DaemonSet or a Deployment.
type Workload struct {
	Kind     string
	Metadata Meta
	Spec     struct {
		Replicas int
		Selector struct{ MatchLabels map[string]string }
		Template struct {
			Spec struct{ Containers []Container }
		}
	}
	Status struct{ DesiredNumberScheduled int }
}

// Wanted is how many pods there should be.
func (w Workload) Wanted() int {
	if w.Kind == "DaemonSet" {
		return w.Status.DesiredNumberScheduled
	}
	return w.Spec.Replicas
}

// Selector is how the pods are asked for.
func (w Workload) Selector() string {
	var parts []string
	for k, v := range w.Spec.Selector.MatchLabels {
		parts = append(parts, k+"="+v)
	}
	return strings.Join(parts, ",")
}

// Bytes reads a quantity of bytes as Kubernetes prints it.
func Bytes(s string) (int64, error) {
	factor := int64(1)
	for i, suffix := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			s, factor = rest, int64(1)<<(10*(i+1))
		}
	}
	for i, suffix := range []string{"k", "M", "G", "T"} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			s = rest
			for range i + 1 {
				factor *= 1000
			}
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no quantity of bytes: %w", s, err)
	}
	return n * factor, nil
}
