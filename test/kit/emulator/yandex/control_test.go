package yandex_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

// web makes a plain HTTP request and returns the status and the body.
func web(t *testing.T, method, url, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

func TestTheMetadataServiceTellsAMachineWhoItIs(t *testing.T) {
	c, _, instance := start(t, emulator.Options{})
	quiet := c.AddInstance(emulator.Instance{Zone: "ru-central1-d", NoServiceAccount: true})
	const base = "/computeMetadata/v1/"
	for _, row := range []struct {
		instance, path string
		status         int
		want           string
	}{
		{instance, base + "instance/id", http.StatusOK, instance},
		{instance, base + "instance/zone", http.StatusOK, "projects/" + emulator.DefaultCloud + "/zones/ru-central1-a"},
		{quiet, base + "instance/zone", http.StatusOK, "projects/" + emulator.DefaultCloud + "/zones/ru-central1-d"},
		{instance, base + "instance/vendor/folder-id", http.StatusOK, c.Folder},
		{instance, base + "instance/attributes/cores", http.StatusNotFound, ""},
		{quiet, base + "instance/service-accounts/default/token", http.StatusNotFound, ""},
		{"fhm0", base + "instance/id", http.StatusNotFound, ""},
	} {
		code, body := web(t, http.MethodGet, c.Metadata(row.instance)+row.path, "", "Metadata-Flavor", "Google")
		if code != row.status || row.want != "" && body != row.want {
			t.Errorf("GET %s of %s = %d %s, want %d %s", row.path, row.instance, code, body, row.status, row.want)
		}
	}
	if code, _ := web(t, http.MethodGet, c.Metadata(instance)+base+"instance/id", ""); code != http.StatusForbidden {
		t.Errorf("without the header = %d, want %d", code, http.StatusForbidden)
	}
	if got := c.Stats().Reads; got != 0 {
		t.Errorf("%d reads, want none: metadata does not count", got)
	}
}

func TestTheOwnerSeesAndChangesTheFolder(t *testing.T) {
	c, a, instance := start(t, emulator.Options{})
	control := c.URL + "/_emulator/"
	disk := mustCreate(t, a, "pvc-1")
	read := func(path string, into any) {
		t.Helper()
		code, body := web(t, http.MethodGet, control+path, "")
		if err := json.Unmarshal([]byte(body), into); code != http.StatusOK || err != nil {
			t.Fatalf("GET %s = %d %s, %v", path, code, body, err)
		}
	}
	var stats emulator.Stats
	read("stats", &stats)
	if stats.Writes != 1 || stats.Routes["DiskService/Create"] != 1 {
		t.Errorf("stats = %+v", stats)
	}
	var disks []emulator.Disk
	read("disks", &disks)
	if len(disks) != 1 || disks[0].ID != disk || disks[0].Status != "READY" {
		t.Errorf("disks = %+v", disks)
	}
	for _, row := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{http.MethodPatch, "settings", `{"rules": {"disk_limit": 1}, "durations": {"attach": "2s+1s"}}`, http.StatusOK, `"disk_limit": 1`},
		{http.MethodPatch, "settings", `{"rules": {"disk_limits": 1}}`, http.StatusBadRequest, "unknown field"},
		{http.MethodPost, "faults", `{"route": "DiskService/Get", "times": 1, "status": 14}`, http.StatusOK, `"status": 14`},
		{http.MethodPost, "instances", `{"zone": "ru-central1-b", "generation": "2"}`, http.StatusOK, `"metadata"`},
		{http.MethodDelete, "instances/" + instance, "", http.StatusOK, "epd"},
		{http.MethodPost, "keys", "", http.StatusOK, "BEGIN PRIVATE KEY"},
		{http.MethodGet, "operations", "", http.StatusOK, `"kind": "create"`},
		{http.MethodGet, "nothing", "", http.StatusNotFound, ""},
	} {
		code, body := web(t, row.method, control+row.path, row.body)
		if code != row.status || !strings.Contains(body, row.want) {
			t.Errorf("%s %s = %d %s, want %d and %s in it", row.method, row.path, code, body, row.status, row.want)
		}
	}
	if code, body := web(t, http.MethodGet, c.URL+"/compute/v1/disks", ""); code != http.StatusNotFound || !strings.Contains(body, "gRPC") {
		t.Errorf("what is not gRPC = %d %s", code, body)
	}
	_, err := a.disks.Create(as(t.Context()), request("pvc-2"))
	refused(t, "a second disk", err, codes.ResourceExhausted, "")
	_, err = a.disks.Get(as(t.Context()), &compute.GetDiskRequest{DiskId: disk})
	refused(t, "the call that is to fail", err, codes.Unavailable, "")
	if code, _ := web(t, http.MethodPost, control+"reset", ""); code != http.StatusOK || c.Stats().Writes != 0 {
		t.Errorf("reset = %d, stats %+v", code, c.Stats())
	}
}

func TestAnInstanceThatIsGoneLosesItsDisks(t *testing.T) {
	simulated(t, emulator.Options{}, func(t *testing.T, c *emulator.Cloud, a *api, instance string) {
		disk := mustCreate(t, a, "pvc-1")
		mustAttach(t, a, disk, instance)
		c.RemoveInstance(instance, time.Minute)
		_, err := a.instances.DetachDisk(as(t.Context()), detachRequest(disk, instance))
		refused(t, "a detach from what is gone", err, codes.NotFound, "")
		if got := stands(mustSee(t, a, disk)); got != "READY "+instance {
			t.Errorf("the disk is %q, want it attached for a minute still", got)
		}
		time.Sleep(2 * time.Minute)
		if got := stands(mustSee(t, a, disk)); got != "READY" || len(c.Instances()) != 0 {
			t.Errorf("the disk is %q, instances %v, want it free and none", got, c.Instances())
		}
	})
}

func TestTimeCanRunFaster(t *testing.T) {
	_, a, _ := start(t, emulator.Options{Speed: 3600, Durations: emulator.Each(clock.Fixed(10 * time.Minute))})
	disk := mustCreate(t, a, "pvc-1")
	begun := time.Now()
	for stands(mustSee(t, a, disk)) != "READY" {
		if time.Since(begun) > 30*time.Second {
			t.Fatal("ten minutes do not pass in half of one")
		}
	}
}
