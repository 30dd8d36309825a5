package main

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

// P3: the whole program with an account: the life of a volume with the requests of the sidecars, a token that changes
// meanwhile, and SIGTERM. The token is not in the log.
func TestProgramOnDigitalOcean(t *testing.T) {
	const token = "dop_v1_canary"
	account := emulator.Start(t, emulator.Options{Droplets: 1, Token: token, Durations: emulator.Actions(clock.Fixed(30 * time.Millisecond))})
	node := strconv.Itoa(account.Droplets()[0])
	dir := t.TempDir()
	file, endpoint, address := filepath.Join(dir, "token"), "unix://"+filepath.Join(dir, "c.sock"), drivertest.FreeAddress(t)
	if err := os.WriteFile(file, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, "--cloud=digitalocean", "--credentials-file="+file, "--api-endpoint="+account.URL,
		"--metadata-endpoint="+account.Metadata(account.Droplets()[0]), "--endpoint="+endpoint, "--http-endpoint="+address,
		"--cluster-id=prod", "--tag=team=a", "--volume-name-prefix=k8s-", "--log-level=debug")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn := drivertest.Dial(t, endpoint)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := csi.NewControllerClient(conn)
	_, err := client.CreateVolume(ctx, createRequest("pvc-1"), grpc.WaitForReady(true))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("CreateVolume with a token that is not accepted: %v, want Unavailable and why", err)
	}
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	liveOnce(ctx, t, client, account, node)
	if text := scrape(t, "http://"+address+"/metrics"); !strings.Contains(metrics.Unnamed(text), `cloudblock_api_requests_total{code="201",method="POST",route="/v2/volumes"}`) {
		t.Errorf("the metrics do not count the requests by route:\n%s", text)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v, want exit 0\n%s", err, log.String())
	}
	if strings.Contains(log.String(), token) {
		t.Errorf("the token is in the log:\n%s", log.String())
	}
}

// liveOnce runs the life of one volume.
func liveOnce(ctx context.Context, t *testing.T, client csi.ControllerClient, account *emulator.Cloud, node string) {
	t.Helper()
	req := createRequest("pvc-1")
	req.Parameters = map[string]string{"csi.storage.k8s.io/pvc/name": "data.db-0", "csi.storage.k8s.io/pvc/namespace": "shop"}
	made, err := client.CreateVolume(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	again, err := client.CreateVolume(ctx, req)
	if err != nil || !proto.Equal(made, again) {
		t.Errorf("CreateVolume again = %v, %v, want %v", again, err, made)
	}
	vol := made.GetVolume()
	const key = "digitalocean.csi.cloudblock.io/"
	if vol.GetVolumeContext()[key+"device-name"] != "scsi-0DO_Volume_k8s-pvc-1" || vol.GetVolumeContext()[key+"serial"] != "k8s-pvc-1" ||
		vol.GetAccessibleTopology()[0].GetSegments()["topology.digitalocean.csi.cloudblock.io/region"] != emulator.DefaultRegion {
		t.Errorf("CreateVolume = %v, want the device's name and the region", vol)
	}
	inCloud, _ := account.Volume(vol.GetVolumeId())
	if tags := strings.Join(inCloud.Tags, " "); tags != "cloudblock-cluster:prod team:a" {
		t.Errorf("the volume has the tags %q, want the cluster's and the user's", tags)
	}
	if !strings.HasSuffix(inCloud.Description, "; cluster=prod; pvc-namespace=shop; pvc=data.db-0") {
		t.Errorf("the volume's description is %q, want the claim in it", inCloud.Description)
	}
	published, err := client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: vol.GetVolumeId(), NodeId: node, VolumeContext: vol.GetVolumeContext(), VolumeCapability: req.GetVolumeCapabilities()[0],
	})
	if err != nil || published.GetPublishContext()[key+"device-name"] != "scsi-0DO_Volume_k8s-pvc-1" {
		t.Errorf("ControllerPublishVolume = %v, %v", published, err)
	}
	_, err = client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: vol.GetVolumeId()})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), node) {
		t.Errorf("DeleteVolume while attached: %v, want FailedPrecondition naming droplet %s", err, node)
	}
	expanded, err := client.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: vol.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 5 << 30}, VolumeCapability: req.GetVolumeCapabilities()[0],
	})
	if err != nil || expanded.GetCapacityBytes() != 5<<30 || !expanded.GetNodeExpansionRequired() {
		t.Errorf("ControllerExpandVolume while attached = %v, %v", expanded, err)
	}
	if _, err := client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: vol.GetVolumeId(), NodeId: node}); err != nil {
		t.Error(err)
	}
	if _, err := client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: vol.GetVolumeId()}); err != nil {
		t.Error(err)
	}
	if left := account.Volumes(); len(left) > 0 {
		t.Errorf("left are %+v", left)
	}
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestWithoutCredentialsOrARegionItSaysWhatIsMissing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no token at all":          {[]string{"--cloud=digitalocean"}, 2, "--credentials-file: required"},
		"a file that is not there": {[]string{"--cloud=digitalocean", "--cluster-id=prod", "--region=fra1", "--credentials-file=" + file, "--endpoint=" + drivertest.Endpoint(t)}, 1, file},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := program(t, tc.args...)
			out, err := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != tc.code || !strings.Contains(string(out), tc.says) {
				t.Errorf("%q exits with %d (%v), want %d and %q in:\n%s", tc.args, got, err, tc.code, tc.says, out)
			}
		})
	}
}
