package machine

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

// yandexService answers paths below computeMetadata/v1/ if the request has the right header.
func yandexService(t *testing.T, answers map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, known := answers[r.URL.Path]
		switch {
		case r.Header.Get("Metadata-Flavor") != "Google":
			http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
		case !known:
			http.NotFound(w, r)
		default:
			_, _ = w.Write([]byte(text))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// machineWith writes the files in which the kernel describes such an instance. With an empty model the CPUs have none.
func machineWith(t *testing.T, model, cpus string, virtio ...int) (root string) {
	t.Helper()
	root = t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, []byte(text+"\n"), 0o600))
	}
	write("sys/devices/system/cpu/present", cpus)
	if model != "" {
		write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 106\nmodel name\t: "+model+"\nstepping\t: 0\n\nprocessor\t: 1")
	}
	for n, kind := range virtio {
		write(fmt.Sprintf("sys/bus/virtio/devices/virtio%d/device", n), fmt.Sprintf("0x%04x", kind))
	}
	return root
}

const (
	disk = 0x0002
	net  = virtioNet
	fs   = virtioFS
)

// QEMU's names of the CPU models of the cloud's platforms.
const (
	broadwell   = "Intel Core Processor (Broadwell, IBRS)"
	cascadeLake = "Intel Xeon Processor (Cascadelake)"
	iceLake     = "Intel Xeon Processor (Icelake)"
)

// A5: the limit is the documented one of the oldest hardware generation, because an instance cannot detect its generation, and of
// the platform if the CPUs show it. The boot disk counts, and file storages do too. Network interfaces count where disks and
// interfaces together are limited to 14. Attached disks change nothing.
func TestPlacesOfYandexMachines(t *testing.T) {
	tests := map[string]struct {
		model  string
		cpus   string
		virtio []int
		want   int64
	}{
		"2 CPUs":                                 {"", "0-1", []int{disk, net}, 8},
		"1 CPU":                                  {"", "0", []int{disk, net}, 8},
		"4 CPUs":                                 {"", "0-3", []int{disk, net}, 8},
		"18 CPUs, the last with 8":               {"", "0-17", []int{disk, net}, 8},
		"19 CPUs":                                {"", "0-18", []int{disk, net}, 13},
		"20 CPUs":                                {"", "0-19", []int{disk, net}, 13},
		"32 CPUs":                                {"", "0-31", []int{disk, net}, 13},
		"96 CPUs in two parts":                   {"", "0-47,48-95", []int{disk, net}, 13},
		"with 5 volumes":                         {"", "0-1", []int{disk, disk, disk, disk, disk, disk, net}, 8},
		"with 5 volumes, large":                  {"", "0-31", []int{disk, disk, disk, disk, disk, disk, net}, 13},
		"a second interface of a small one":      {"", "0-1", []int{disk, net, net}, 8},
		"a second interface of a large one":      {"", "0-31", []int{disk, net, net}, 12},
		"8 interfaces of a small one":            {"", "0-7", []int{disk, net, net, net, net, net, net, net, net}, 6},
		"a file storage":                         {"", "0-1", []int{disk, net, fs}, 7},
		"two file storages of a large one":       {"", "0-31", []int{disk, net, fs, fs}, 11},
		"other devices":                          {"", "0-1", []int{disk, net, 0x0003, 0x0010, 0x0013}, 8},
		"18 CPUs of the first platform":          {broadwell, "0-17", []int{disk, net}, 8},
		"20 CPUs of the first platform":          {broadwell, "0-19", []int{disk, net}, 13},
		"20 CPUs of the second platform":         {cascadeLake, "0-19", []int{disk, net}, 8},
		"22 CPUs of the second platform":         {cascadeLake, "0-21", []int{disk, net}, 13},
		"32 CPUs of the third platform":          {iceLake, "0-31", []int{disk, net}, 8},
		"36 CPUs of the third platform":          {iceLake, "0-35", []int{disk, net}, 13},
		"32 CPUs of another model":               {"AMD EPYC Processor", "0-31", []int{disk, net}, 13},
		"no virtio at all, as on other machines": {"", "0-1", nil, 8},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			base := yandexService(t, map[string]string{
				"/computeMetadata/v1/instance/id":   "fhmq1d2l3k4j5h6g7f8d",
				"/computeMetadata/v1/instance/zone": "projects/b1gcloud/zones/ru-central1-d",
			})
			got, err := YandexBelow(t.Context(), base+"/", machineWith(t, tc.model, tc.cpus, tc.virtio...))
			want := Info{ID: "fhmq1d2l3k4j5h6g7f8d", Zone: "ru-central1-d", MaxDisks: tc.want}
			if got != want || err != nil {
				t.Errorf("Yandex = %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

// A5: an instance that booted by UEFI is of generation 2, which has a higher limit. Any other may be of generation 1.2, which has
// the same, or of 1.1, whose limit is safe.
func TestPlacesOfYandexMachinesOfLaterGenerations(t *testing.T) {
	base := yandexService(t, map[string]string{
		"/computeMetadata/v1/instance/id":   "fhmq1d2l3k4j5h6g7f8d",
		"/computeMetadata/v1/instance/zone": "projects/b1gcloud/zones/ru-central1-d",
	})
	for name, tc := range map[string]struct {
		cpus   string
		virtio []int
		uefi   bool
		want   int64
	}{
		"2 CPUs, BIOS":                       {"0-1", []int{disk, net}, false, 8},
		"2 CPUs, UEFI":                       {"0-1", []int{disk, net}, true, 62},
		"4 CPUs, UEFI":                       {"0-3", []int{disk, net}, true, 62},
		"6 CPUs, UEFI":                       {"0-5", []int{disk, net}, true, 80},
		"96 CPUs, BIOS":                      {"0-95", []int{disk, net}, false, 13},
		"UEFI and a file storage":            {"0-1", []int{disk, net, fs}, true, 61},
		"UEFI and interfaces, which are few": {"0-7", []int{disk, net, net, net, net, net, net, net, net}, true, 80},
	} {
		t.Run(name, func(t *testing.T) {
			root := machineWith(t, iceLake, tc.cpus, tc.virtio...)
			if tc.uefi {
				must(t, os.MkdirAll(filepath.Join(root, "sys/firmware/efi"), 0o700))
			}
			got, err := YandexBelow(t.Context(), base, root)
			if got.MaxDisks != tc.want || err != nil {
				t.Errorf("Yandex = %+v, %v, want %d places", got, err, tc.want)
			}
		})
	}
}

func TestAMachineThatIsNotYandexsIsToldApart(t *testing.T) {
	for name, tc := range map[string]struct{ id, zone, cpus string }{
		"an id of another form": {"<html>", "ru-central1-a", "0-1"},
		"no zone":               {"fhmq1d2l3k4j5h6g7f8d", "", "0-1"},
		"CPUs nobody can count": {"fhmq1d2l3k4j5h6g7f8d", "projects/x/zones/ru-central1-a", "many"},
	} {
		t.Run(name, func(t *testing.T) {
			base := yandexService(t, map[string]string{"/computeMetadata/v1/instance/id": tc.id, "/computeMetadata/v1/instance/zone": tc.zone})
			got, err := YandexBelow(t.Context(), base, machineWith(t, "", tc.cpus))
			if fault.Of(err) != fault.Unavailable {
				t.Errorf("Yandex = %+v, %v, want the kind %q", got, err, fault.Unavailable)
			}
		})
	}
}

func TestYandexFolderAndToken(t *testing.T) {
	const token = "/computeMetadata/v1/instance/service-accounts/default/token"
	base := yandexService(t, map[string]string{
		"/computeMetadata/v1/instance/vendor/folder-id": "b1gvmob95yysaplct532", token: `{"access_token":"t1.secret","expires_in":600,"token_type":"Bearer"}`,
	})
	if folder, err := YandexFolder(t.Context(), base); folder != "b1gvmob95yysaplct532" || err != nil {
		t.Errorf("YandexFolder = %q, %v", folder, err)
	}
	got, expires, err := YandexToken(t.Context(), base)
	if left := time.Until(expires); got != "t1.secret" || err != nil || left < 590*time.Second || left > 600*time.Second {
		t.Errorf("YandexToken = %q, %s, %v", got, expires, err)
	}
	for name, tc := range map[string]struct {
		answers map[string]string
		kind    fault.Kind
	}{
		"no service account": {map[string]string{}, fault.Denied},
		"no token":           {map[string]string{token: `{"expires_in":600}`}, fault.Unavailable},
		"no JSON":            {map[string]string{token: `<html>`}, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _, err := YandexToken(t.Context(), yandexService(t, tc.answers)); fault.Of(err) != tc.kind {
				t.Errorf("YandexToken = %q, %v, want the kind %q", got, err, tc.kind)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := YandexToken(ctx, "http://127.0.0.1:1"); fault.Of(err) != fault.Unavailable {
		t.Errorf("YandexToken where nobody is = %v", err)
	}
}
