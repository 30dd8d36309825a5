package yandex

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/account"
)

// This file is the machines: how the API shows them, which disks they take, and what each finds in its metadata service.

const (
	statusRunning = "RUNNING"
	statusStopped = "STOPPED"
)

type instanceService struct {
	compute.UnimplementedInstanceServiceServer
	c *Cloud
}

// Get shows an instance.
func (s instanceService) Get(ctx context.Context, ask *compute.GetInstanceRequest) (*compute.Instance, error) {
	return instanceShelf.get(ctx, s.c, ask.GetInstanceId())
}

// ListOperations shows the operations of an instance, the newest first.
func (s instanceService) ListOperations(ctx context.Context, ask *compute.ListInstanceOperationsRequest) (*compute.ListInstanceOperationsResponse, error) {
	operations, next, err := s.c.listOperations(ctx, "Instance", ask.GetInstanceId(), ask)
	return &compute.ListInstanceOperationsResponse{Operations: operations, NextPageToken: next}, err
}

// mayTouch says why disks of an instance cannot be changed. While it boots, the operation begins and fails.
func (c *Cloud) mayTouch(id string) (i Instance, fails, why *refusal) {
	if why := checkID("instance_id", id); why != nil {
		return i, nil, why
	}
	i, found := c.now.instances[id]
	switch {
	case !found:
		return i, nil, notFound.with("Instance", id)
	case slices.Contains([]string{statusRunning, statusStopped}, i.Status):
		return i, nil, nil
	case slices.Contains([]string{"PROVISIONING", "STARTING", "RESTARTING"}, i.Status):
		return i, booting.with(id), nil
	}
	return i, nil, wrongState.with("Instance", id, i.Status)
}

// AttachDisk gives a disk to an instance.
func (s instanceService) AttachDisk(ctx context.Context, ask *compute.AttachInstanceDiskRequest) (*operationpb.Operation, error) {
	c := s.c
	return c.change(ctx, func() (*job, *refusal) {
		i, fails, why := c.mayTouch(ask.GetInstanceId())
		spec := ask.GetAttachedDiskSpec()
		if why == nil {
			why = checkSpec(spec)
		}
		if why != nil {
			return nil, why
		}
		d, why := diskShelf.existing(c, spec.GetDiskId(), statusReady)
		if why == nil {
			why = c.mayAttach(d, i, spec.GetDeviceName())
		}
		if why != nil {
			return nil, why
		}
		device := cmp.Or(spec.GetDeviceName(), d.ID) // as the cloud's pages show it, not at random as the description says
		readOnly := spec.GetMode() == compute.AttachedDiskSpec_READ_ONLY
		change := func(d *disk) { d.Instance, d.Device, d.ReadOnly = i.ID, device, readOnly }
		j := &job{
			kind: kindAttach, description: "Attach disk to instance", disk: d.ID, name: d.Name, instance: i.ID, fails: fails,
			lasts: c.lasts.Attach, claims: []string{d.ID, i.ID},
			metadata: &compute.AttachInstanceDiskMetadata{InstanceId: i.ID, DiskId: d.ID},
			fail:     func() { c.changeDisk(d.ID, freed) },
			finish: func() proto.Message {
				c.plug(c.changeDisk(d.ID, change), c.now.instances[i.ID])
				return c.showInstance(&c.now, c.now.instances[i.ID])
			},
		}
		if fails == nil {
			j.early = func() { c.changeDisk(d.ID, change) }
			j.accept = c.onAccept(j.early)
		}
		return j, nil
	})
}

func checkSpec(spec *compute.AttachedDiskSpec) *refusal {
	switch {
	case spec == nil:
		return bad("attached_disk_spec", "Field is required")
	case spec.GetDiskSpec() != nil:
		return bad("attached_disk_spec.disk_spec", "The emulator attaches disks that exist")
	}
	return checkDevice(spec.GetDeviceName())
}

// mayAttach says why an instance cannot have a disk.
func (c *Cloud) mayAttach(d disk, i Instance, device string) *refusal {
	attached := c.now.attachedTo(i.ID)
	coming := account.Count(c.running, func(j *job) bool {
		return j.kind == kindAttach && j.instance == i.ID && c.now.disks[j.disk].Instance == ""
	})
	switch {
	case d.Instance != "":
		return attachedToInstance.with(d.ID)
	case d.Zone != i.Zone:
		return otherZone.with(d.ID, d.Zone, i.ID, i.Zone)
	case device != "" && slices.ContainsFunc(attached, func(other disk) bool { return other.Device == device }):
		return deviceTaken.with(device, i.ID)
	case len(attached)+coming >= i.mostDisks():
		return &tooManyDisks
	}
	return nil
}

// DetachDisk takes a disk from an instance.
func (s instanceService) DetachDisk(ctx context.Context, ask *compute.DetachInstanceDiskRequest) (*operationpb.Operation, error) {
	c := s.c
	return c.change(ctx, func() (*job, *refusal) {
		i, fails, why := c.mayTouch(ask.GetInstanceId())
		if why != nil {
			return nil, why
		}
		d, why := c.mayDetach(i, ask)
		if why != nil {
			return nil, why
		}
		j := &job{
			kind: kindDetach, description: "Detach disk from instance", disk: d.ID, name: d.Name, instance: i.ID, fails: fails,
			lasts: c.lasts.Detach, claims: []string{d.ID, i.ID},
			metadata: &compute.DetachInstanceDiskMetadata{InstanceId: i.ID, DiskId: d.ID},
			finish: func() proto.Message {
				c.free(d.ID)
				return c.showInstance(&c.now, c.now.instances[i.ID])
			},
		}
		if fails == nil {
			j.early = func() { c.changeDisk(d.ID, freed) }
			j.fail = func() {
				if _, stays := c.now.instances[i.ID]; !stays {
					return
				}
				c.changeDisk(d.ID, func(now *disk) { now.Instance, now.Device, now.ReadOnly = d.Instance, d.Device, d.ReadOnly })
			}
		}
		return j, nil
	})
}

func (c *Cloud) mayDetach(i Instance, ask *compute.DetachInstanceDiskRequest) (disk, *refusal) {
	id, name := ask.GetDiskId(), ask.GetDeviceName()
	if id == "" && name == "" {
		return disk{}, bad("disk", "Exactly one of disk_id and device_name is required")
	}
	if why := cmp.Or(checkOptionalID("disk_id", id), checkDevice(name)); why != nil {
		return disk{}, why
	}
	attached := c.now.attachedTo(i.ID)
	at := slices.IndexFunc(attached, func(d disk) bool { return d.ID == id || name != "" && d.Device == name })
	_, exists := c.now.disks[id]
	switch {
	case at < 0 && id != "" && !exists:
		return disk{}, notFound.with("Disk", id)
	case at < 0:
		return disk{}, notAttached.with(i.ID)
	case attached[at].Boot:
		return disk{}, bootDisk.with(attached[at].ID)
	}
	return attached[at], nil
}

// freed is what the record of a disk becomes that is no instance's any more.
func freed(d *disk) { d.Instance, d.Device, d.ReadOnly = "", "", false }

// free takes a disk from its instance.
func (c *Cloud) free(id string) {
	d := c.now.disks[id]
	c.unplug(d)
	c.changeDisk(id, freed)
}

// mostDisks is how many disks an instance can have, the one that it boots from included.
func (i Instance) mostDisks() int {
	if i.Generation == Generation12 || i.Generation == Generation2 {
		const few, many, fewCores = 62, 80, 4
		if i.Cores <= fewCores {
			return few
		}
		return many
	}
	const few, many, fewCores = 8, 16, 32
	if i.Cores <= fewCores {
		return few
	}
	return many
}

// plug gives a disk to its machine, under the name that the attach said.
func (c *Cloud) plug(d disk, i Instance) {
	if d.Device != d.file {
		c.trouble(d.ID, c.disks.Rename(data(d), link(d.Device)))
		d = c.changeDisk(d.ID, func(d *disk) { d.file = d.Device })
	}
	if i.DeviceDir != "" {
		c.trouble(d.ID, c.disks.Attach(data(d), i.DeviceDir))
	}
}

// unplug takes a disk away from its machine, as a cloud does: whether it is in use or not. That it was in use
// is what a test must see.
func (c *Cloud) unplug(d disk) {
	if c.Held(d.ID) {
		c.violation("detached while in use", d)
	}
	inUse, err := c.disks.Detach(data(d))
	if inUse {
		c.violation("detached while its device was mounted or open", d)
	}
	c.trouble(d.ID, err)
}

// metadataRoutes serves the metadata service of each instance below /instances/<id>: what the real one tells
// of an instance, which is not how many cores it has, nor of which platform or generation it is.
func (c *Cloud) metadataRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /instances/{instance}/computeMetadata/v1/{path...}", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" {
			http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
			return
		}
		w.Header().Set("Metadata-Flavor", "Google")
		c.metadata(w, r, func(i Instance) any { return c.tell(i, strings.TrimSuffix(r.PathValue("path"), "/")) })
	})
}

// metadata answers with a text, or anything else as JSON; nothing is not found.
func (c *Cloud) metadata(w http.ResponseWriter, r *http.Request, tell func(Instance) any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, found := c.now.instances[r.PathValue("instance")]
	var told any
	if found {
		told = tell(i)
	}
	switch told := told.(type) {
	case nil:
		http.NotFound(w, r)
	case string:
		w.Header().Set("Content-Type", "application/text")
		_, _ = fmt.Fprint(w, told) // a client that went away needs no answer
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(told)
	}
}

func (c *Cloud) tell(i Instance, path string) any {
	switch path {
	case "instance/id":
		return i.ID
	case "instance/zone":
		return "projects/" + DefaultCloud + "/zones/" + i.Zone
	case "instance/vendor/folder-id":
		return c.Folder
	case "instance/service-accounts/default/token":
		if i.NoServiceAccount {
			return nil
		}
		token, ends := c.newToken()
		return map[string]any{"access_token": token, "expires_in": int(time.Until(ends).Seconds()), "token_type": "Bearer"}
	}
	return nil
}
