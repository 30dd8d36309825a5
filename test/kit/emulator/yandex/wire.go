package yandex

import (
	"cmp"
	"context"
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rpc"
)

// The beginnings of ids. That of a disk or an instance says where it is.
const snapshotPrefix = "fd8"

func zonePrefix(zone string) string {
	switch zone[max(0, len(zone)-1):] {
	case "a":
		return "fhm"
	case "b":
		return "epd"
	case "d":
		return "fv4"
	}
	return "f9z"
}

// newID returns an id for the next thing of a kind with a name: 20 letters and digits, so that a disk's can
// be a device name.
func (c *Cloud) newID(prefix, kind, name string) string {
	const length = 17
	return prefix + strings.ReplaceAll(c.dice.UUID(kind, name), "-", "")[:length]
}

// stamp is a time as the API shows it, to the second.
func stamp(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t.Truncate(time.Second)) }

func diskRow(d disk) row { return row{id: d.ID, name: d.Name, status: d.Status} }

func snapshotRow(s snapshot) row { return row{id: s.ID, name: s.Name, status: s.Status} }

func (c *Cloud) showDisk(d disk) *compute.Disk {
	shown := &compute.Disk{
		Id: d.ID, FolderId: c.Folder, CreatedAt: stamp(d.Created), Name: d.Name, Description: d.Description, Labels: d.Labels,
		TypeId: d.Type, ZoneId: d.Zone, Size: d.Size, BlockSize: d.BlockSize,
		Status: compute.Disk_Status(compute.Disk_Status_value[d.Status]), DiskPlacementPolicy: d.policy(),
	}
	switch {
	case d.Snapshot != "":
		shown.Source = &compute.Disk_SourceSnapshotId{SourceSnapshotId: d.Snapshot}
	case d.Image != "":
		shown.Source = &compute.Disk_SourceImageId{SourceImageId: d.Image}
	}
	if d.Instance != "" {
		shown.InstanceIds = []string{d.Instance}
	}
	if d.Key != "" {
		shown.KmsKey = &compute.KMSKey{KeyId: d.Key, VersionId: d.Key}
	}
	return shown
}

func (c *Cloud) showSnapshot(s snapshot) *compute.Snapshot {
	shown := &compute.Snapshot{
		Id: s.ID, FolderId: c.Folder, CreatedAt: stamp(s.Created), Name: s.Name, Description: s.Description, Labels: s.Labels,
		DiskSize: s.DiskSize, SourceDiskId: s.Disk, Status: compute.Snapshot_Status(compute.Snapshot_Status_value[s.Status]),
	}
	if s.Status == statusReady {
		shown.StorageSize = s.DiskSize / 8 // what was written; nobody counts that here, so it is a plausible part
	}
	if s.Key != "" {
		shown.KmsKey = &compute.KMSKey{KeyId: s.Key, VersionId: s.Key}
	}
	return shown
}

func (c *Cloud) showInstance(view *state, i Instance) *compute.Instance {
	shown := &compute.Instance{
		Id: i.ID, FolderId: c.Folder, Name: i.Name, ZoneId: i.Zone, PlatformId: platform, Fqdn: i.Name + ".ru-central1.internal",
		Resources:          &compute.Resources{Cores: int64(i.Cores), Memory: int64(i.Cores) * 4 * gib, CoreFraction: 100},
		Status:             compute.Instance_Status(compute.Instance_Status_value[i.Status]),
		HardwareGeneration: generation(i.Generation),
	}
	if !i.NoServiceAccount {
		shown.ServiceAccountId = serviceAccount
	}
	for _, d := range view.attachedTo(i.ID) {
		at := &compute.AttachedDisk{DiskId: d.ID, DeviceName: d.Device, Mode: compute.AttachedDisk_READ_WRITE, AutoDelete: d.Boot}
		if d.ReadOnly {
			at.Mode = compute.AttachedDisk_READ_ONLY
		}
		if d.Boot {
			shown.BootDisk = at
		} else {
			shown.SecondaryDisks = append(shown.SecondaryDisks, at)
		}
	}
	return shown
}

func generation(name string) *compute.HardwareGeneration {
	legacy := func(topology compute.PCITopology) *compute.HardwareGeneration {
		return &compute.HardwareGeneration{Features: &compute.HardwareGeneration_LegacyFeatures{
			LegacyFeatures: &compute.LegacyHardwareFeatures{PciTopology: topology},
		}}
	}
	switch name {
	case Generation11:
		return legacy(compute.PCITopology_PCI_TOPOLOGY_V1)
	case Generation12:
		return legacy(compute.PCITopology_PCI_TOPOLOGY_V2)
	case Generation2:
		return &compute.HardwareGeneration{Features: &compute.HardwareGeneration_Generation2Features{
			Generation2Features: &compute.Generation2HardwareFeatures{},
		}}
	}
	return nil
}

// showOperation is nil for one that there is not.
func showOperation(o operation) *operationpb.Operation {
	if o.id == "" {
		return nil
	}
	shown := &operationpb.Operation{
		Id: o.id, Description: o.description, CreatedAt: stamp(o.created), CreatedBy: serviceAccount, ModifiedAt: stamp(o.modified),
		Done: o.done, Metadata: o.metadata,
	}
	switch {
	case o.failure != nil:
		shown.Result = &operationpb.Operation_Error{Error: o.failure}
	case o.done:
		shown.Result = &operationpb.Operation_Response{Response: o.response}
	}
	return shown
}

// listOperations shows the operations of a thing that exists.
func (c *Cloud) listOperations(ctx context.Context, kind, id string, ask paged) (shown []*operationpb.Operation, next string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := checkID(strings.ToLower(kind)+"_id", id); why != nil {
		return nil, "", c.refuse(why)
	}
	view := c.view(effectOf(ctx))
	_, isDisk := view.disks[id]
	_, isSnapshot := view.snapshots[id]
	_, isInstance := view.instances[id]
	if !isDisk && !isSnapshot && !isInstance {
		return nil, "", c.refuse(notFound.with(kind, id))
	}
	all := view.operationList(func(o operation) bool {
		return !c.expired(o) && (o.snap == id || o.onto == id || o.disk == id && (!c.rules.OperationsApart || !o.moves))
	})
	page, next, why := pageOf(c, all, func(o operation) string { return o.id }, ask)
	if why != nil {
		return nil, "", c.refuse(why)
	}
	for _, o := range page {
		shown = append(shown, showOperation(o))
	}
	return shown, next, nil
}

// shelf is how the API shows a kind of things: of each row R a message T.
type shelf[R, T any] struct {
	kind   string
	rows   func(*state) map[string]R
	all    func(*Cloud, *state) []R
	fields func(R) row
	show   func(*Cloud, *state, R) T
}

var diskShelf = shelf[disk, *compute.Disk]{
	kind: "Disk", rows: diskRows, fields: diskRow,
	all: func(c *Cloud, view *state) []disk {
		return view.diskList(func(d disk) bool { return !d.Boot || !c.rules.BootDisksElsewhere })
	},
	show: func(c *Cloud, _ *state, d disk) *compute.Disk { return c.showDisk(d) },
}

var snapshotShelf = shelf[snapshot, *compute.Snapshot]{
	kind: "Snapshot", rows: snapshotRows, fields: snapshotRow,
	all: func(_ *Cloud, view *state) []snapshot {
		return view.snapshotList(func(snapshot) bool { return true })
	},
	show: func(c *Cloud, _ *state, s snapshot) *compute.Snapshot { return c.showSnapshot(s) },
}

var instanceShelf = shelf[Instance, *compute.Instance]{
	kind: "Instance", rows: instanceRows,
	fields: func(i Instance) row { return row{id: i.ID, name: i.Name} },
	show:   (*Cloud).showInstance,
}

// get answers a Get call.
func (s shelf[R, T]) get(ctx context.Context, c *Cloud, id string) (shown T, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	view := c.view(effectOf(ctx))
	found, why := s.find(view, id)
	if why != nil {
		return shown, c.refuse(why)
	}
	return s.show(c, view, found), nil
}

// list answers a List call.
func (s shelf[R, T]) list(ctx context.Context, c *Cloud, ask interface {
	listed
	GetFolderId() string
}) (shown []T, next string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.checkFolder(ask.GetFolderId()); why != nil {
		return nil, "", c.refuse(why)
	}
	view := c.view(effectOf(ctx))
	page, next, why := listOf(c, s.all(c, view), s.fields, ask)
	if why != nil {
		return nil, "", c.refuse(why)
	}
	for _, found := range page {
		shown = append(shown, s.show(c, view, found))
	}
	return shown, next, nil
}

// existing returns what an operation may touch: it is there, and in one of the states.
func (s shelf[R, T]) existing(c *Cloud, id string, states ...string) (R, *refusal) {
	found, why := s.find(&c.now, id)
	if why != nil {
		return found, why
	}
	if status := s.fields(found).status; !slices.Contains(states, status) {
		return found, wrongState.with(s.kind, id, status)
	}
	return found, nil
}

func (s shelf[R, T]) find(view *state, id string) (found R, why *refusal) {
	if malformed := checkID(strings.ToLower(s.kind)+"_id", id); malformed != nil {
		return found, malformed
	}
	found, is := s.rows(view)[id]
	if !is {
		return found, notFound.with(s.kind, id)
	}
	return found, nil
}

const (
	usualPage    = 100
	largestPage  = 1000
	longestToken = 100
)

type paged interface {
	GetPageSize() int64
	GetPageToken() string
}

// pageOf returns the page of a list that a request asks for. It begins behind the element whose id is in the
// token, so elements that come and go shift nothing; or, by rule, behind so many elements.
func pageOf[T any](c *Cloud, all []T, id func(T) string, ask paged) (page []T, next string, why *refusal) {
	switch {
	case ask.GetPageSize() < 0 || ask.GetPageSize() > largestPage:
		return nil, "", bad("page_size", "Value must be less than or equal to %d", largestPage)
	case len(ask.GetPageToken()) > longestToken:
		return nil, "", bad("page_token", "Size must be less than or equal to %d", longestToken)
	}
	size := cmp.Or(int(ask.GetPageSize()), usualPage)
	after, err := base64.RawURLEncoding.DecodeString(ask.GetPageToken())
	if err != nil {
		return nil, "", bad("page_token", "Token is invalid")
	}
	passed, _ := strconv.Atoi(string(after))
	switch {
	case ask.GetPageToken() == "":
	case c.rules.PagesByNumber:
		all = all[min(passed, len(all)):]
	default:
		at := slices.IndexFunc(all, func(item T) bool { return id(item) == string(after) })
		if at < 0 { // it has gone
			at = slices.IndexFunc(all, func(item T) bool { return id(item) > string(after) }) - 1
			if at < -1 {
				at = len(all) - 1
			}
		}
		all = all[at+1:]
	}
	if len(all) <= size {
		return all, "", nil
	}
	mark := id(all[size-1])
	if c.rules.PagesByNumber {
		mark = strconv.Itoa(passed + size)
	}
	return all[:size], base64.RawURLEncoding.EncodeToString([]byte(mark)), nil
}

type listed interface {
	paged
	GetFilter() string
	GetOrderBy() string
}

// row is what a list is filtered by and cut at.
type row struct{ id, name, status string }

var byName = regexp.MustCompile(`^name="([^"\\]*)"$`)

// listOf filters a list by the name and cuts it, in the order of the ids.
func listOf[T any](c *Cloud, all []T, fields func(T) row, ask listed) (page []T, next string, why *refusal) {
	if ask.GetOrderBy() != "" {
		return nil, "", bad("order_by", "The emulator orders by id")
	}
	if text := ask.GetFilter(); text != "" {
		asked := byName.FindStringSubmatch(text)
		if asked == nil {
			return nil, "", bad("filter", "The emulator filters by name")
		}
		all = slices.DeleteFunc(all, func(item T) bool { return fields(item).name != asked[1] })
	}
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(fields(a).id, fields(b).id) })
	return pageOf(c, all, func(item T) string { return fields(item).id }, ask)
}

// effectOf returns what a fault wants of a call.
func effectOf(ctx context.Context) effect { return rpc.From(ctx).Effect }

func firstOf(header metadata.MD, name string) string {
	if values := header.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}
