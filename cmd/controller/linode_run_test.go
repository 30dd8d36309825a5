package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
)

// onLinode starts the program for an account of Linode.
func onLinode(t *testing.T, account *emulator.Cloud, log io.Writer, args ...string) (conn *grpc.ClientConn, end func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	ok(t, os.WriteFile(file, []byte(account.Token+"\n"), 0o600))
	return serving(t, log, append(args, "--cloud=linode", "--credentials-file="+file, "--api-endpoint="+account.URL, "--cluster-id=prod")...)
}

// The whole program with an account of Linode. It tests the wiring and the behaviour of this cloud only; the suites test the rest.
func TestProgramOnLinode(t *testing.T) {
	account := emulator.Start(t, emulator.Options{Linodes: 1, Durations: emulator.Each(clock.Fixed(30 * time.Millisecond))})
	machine := account.Linodes()[0]
	conn, _ := onLinode(t, account, nil, "--metadata-endpoint="+account.Metadata(machine), "--tag=team=a", "--volume-name-prefix=k8s-")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := csi.NewControllerClient(conn)
	req := createRequest("pvc-1")
	req.Parameters = map[string]string{"encrypted": "true"}
	raw := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}, AccessMode: req.GetVolumeCapabilities()[0].GetAccessMode(),
	}
	made, err := client.CreateVolume(ctx, req, grpc.WaitForReady(true))
	ok(t, err)
	vol := made.GetVolume()
	if vol.GetCapacityBytes() != 10<<30 || vol.GetVolumeContext()["linode.csi.cloudblock.io/device-name"] != "scsi-0Linode_Volume_k8s-pvc-1" ||
		vol.GetAccessibleTopology()[0].GetSegments()["topology.linode.csi.cloudblock.io/region"] != emulator.DefaultRegion || !account.Volumes()[0].Encrypted {
		t.Errorf("CreateVolume = %v, want 10 GiB, encrypted, the device's name and the region", vol)
	}
	if tags := account.Volumes()[0].Tags; !slices.Contains(tags, "team:a") {
		t.Errorf("the volume has the tags %q, want that of the flag among them", tags)
	}
	expand := &csi.ControllerExpandVolumeRequest{VolumeId: vol.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 15 << 30}, VolumeCapability: raw}
	if got, err := client.ControllerExpandVolume(ctx, expand); err != nil || got.GetCapacityBytes() != 15<<30 || got.GetNodeExpansionRequired() {
		t.Errorf("ControllerExpandVolume of a free raw volume = %v, %v", got, err)
	}
	if _, err := client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: vol.GetVolumeId(), NodeId: strconv.Itoa(machine), VolumeContext: vol.GetVolumeContext(), VolumeCapability: raw,
	}); err != nil {
		t.Fatal(err)
	}
	// The Linode shows the size after the next attach, so the node has to confirm it, for raw volumes too.
	expand.CapacityRange.RequiredBytes = 20 << 30
	if got, err := client.ControllerExpandVolume(ctx, expand); err != nil || got.GetCapacityBytes() != 20<<30 || !got.GetNodeExpansionRequired() {
		t.Errorf("ControllerExpandVolume of an attached raw volume = %v, %v", got, err)
	}
	_, err = client.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: vol.GetVolumeId()})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "Linode has no snapshots") || !strings.Contains(err.Error(), "dataSource") {
		t.Errorf("CreateSnapshot = %v, want Unimplemented, why, and what to do instead", err)
	}
}

// Snapshots of Linode are an option of the program, which says what they cost.
func TestProgramKeepsClonesAsSnapshots(t *testing.T) {
	account := emulator.Start(t, emulator.Options{Durations: emulator.Each(clock.Fixed(30 * time.Millisecond))})
	var log drivertest.Log
	conn, _ := onLinode(t, account, &log, "--region="+emulator.DefaultRegion, "--linode-snapshots=clones")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := csi.NewControllerClient(conn)
	made, err := client.CreateVolume(ctx, createRequest("pvc-1"), grpc.WaitForReady(true))
	ok(t, err)
	id := made.GetVolume().GetVolumeId()
	snap, err := client.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id, Parameters: map[string]string{"consistency": "detached"}})
	if err != nil || !snap.GetSnapshot().GetReadyToUse() || snap.GetSnapshot().GetSourceVolumeId() != id || len(snap.GetSnapshot().GetAccessibleTopology()) != 1 {
		t.Fatalf("CreateSnapshot = %v, %v", snap, err)
	}
	plugin, err := csi.NewIdentityClient(conn).GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	if err != nil || !strings.Contains(plugin.String(), "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS") {
		t.Errorf("GetPluginCapabilities = %v, %v", plugin, err)
	}
	list, err := client.ListVolumes(ctx, &csi.ListVolumesRequest{})
	if err != nil || len(list.GetEntries()) != 1 {
		t.Errorf("ListVolumes = %v, %v, want the volume alone", list, err)
	}
	eventually(t, "the log says what a snapshot costs", func() bool { return strings.Contains(log.String(), "billed as a volume") })
	if text := log.String(); !strings.Contains(text, `"dollars_per_gib_and_month":0.1`) {
		t.Errorf("the log lacks the price:\n%s", text)
	}
}

// A token that lacks a scope is reported before the first pod needs the scope.
func TestReadinessNamesTheScopesThatAreMissing(t *testing.T) {
	account := emulator.Start(t, emulator.Options{Rules: emulator.Rules{Scopes: []string{"linodes:read_only", "volumes:read_write"}}})
	address := drivertest.FreeAddress(t)
	var log bytes.Buffer
	conn, end := onLinode(t, account, &log, "--region="+emulator.DefaultRegion, "--http-endpoint="+address)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	const lacks = "the API token lacks the scope linodes:read_write"
	if _, text := drivertest.Page(t, "http://"+address+"/readyz"); !strings.Contains(text, lacks) {
		t.Errorf("/readyz says %q, want %q", text, lacks)
	}
	end()
	if !strings.Contains(log.String(), lacks) {
		t.Errorf("the log is %s, want %q in it", log.String(), lacks)
	}
}
