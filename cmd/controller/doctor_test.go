package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var ok = expect.NoError

// finding is what doctor must report about a planted fault.
type finding struct {
	check  string
	state  doctor.State
	reason fault.Reason
	says   string // in the message
	remedy string
}

// yandexRead matches the calls of Yandex Cloud that change nothing.
var yandexRead = regexp.MustCompile(`/(Get|List)$|^IamTokenService/Create$`)

// findings runs doctor as the real program.
func findings(t *testing.T, args ...string) (report doctor.Report, exit int) {
	t.Helper()
	cmd := program(t, append([]string{"doctor", "--output=json", "--endpoint=unix://" + t.TempDir() + "/c.sock"}, args...)...)
	out, _ := cmd.Output()
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("doctor %q prints %q: %v", args, out, err)
	}
	return report, cmd.ProcessState.ExitCode()
}

// wants fails the test unless the report has the finding, and no other problem.
func (want finding) wants(t *testing.T, report doctor.Report, exit int) {
	t.Helper()
	is := func(f doctor.Finding) bool {
		return f.Check == want.check && f.State == want.state && f.Reason == want.reason &&
			strings.Contains(f.Message, want.says) && strings.Contains(f.Remedy, want.remedy)
	}
	if !slices.ContainsFunc(report, is) {
		t.Errorf("doctor finds %+v, want %+v", report, want)
	}
	// The account of these tests is empty.
	empty := func(f doctor.Finding) bool {
		return f.Check == "account" && f.State == doctor.Warning && strings.HasPrefix(f.Message, "it has no volume of the cluster")
	}
	others := slices.ContainsFunc(report, func(f doctor.Finding) bool { return f.State != doctor.OK && !is(f) && !empty(f) })
	if wrong := want.state == doctor.Wrong; others || (exit == 1) != wrong || exit > 1 {
		t.Errorf("doctor exits with %d and finds %+v, want only %+v", exit, report, want)
	}
}

// without returns the flags without those of the form --name=value, and with others.
func without(flags []string, name string, more ...string) []string {
	return append(slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return strings.HasPrefix(f, "--"+name+"=") }), more...)
}

func TestDoctorFindsWhatIsWrongWithACloud(t *testing.T) {
	const nowhere = "http://127.0.0.1:1"
	type plant func(t *testing.T, a accounts.Account, flags []string) []string
	token := func(text string) plant {
		return func(t *testing.T, _ accounts.Account, flags []string) []string {
			file := filepath.Join(t.TempDir(), "token")
			ok(t, os.WriteFile(file, []byte(text), 0o600))
			return without(flags, "credentials-file", "--credentials-file="+file)
		}
	}
	instead := func(flag, other string) plant {
		return func(_ *testing.T, _ accounts.Account, flags []string) []string { return without(flags, flag, other) }
	}
	plain := func(_ *testing.T, _ accounts.Account, flags []string) []string { return flags }
	wrong, denied := doctor.Wrong, fault.AccessDenied
	tests := map[string]struct {
		cloud string
		plant plant
		want  finding
	}{
		"digitalocean: nothing":          {"digitalocean", plain, finding{"region", doctor.OK, "", "fra1 has volumes", ""}},
		"linode: nothing":                {"linode", plain, finding{"region", doctor.OK, "", "us-ord has volumes", ""}},
		"yandex: nothing":                {"yandex", plain, finding{"region", doctor.OK, "", "ru-central1-a has volumes", ""}},
		"digitalocean: a bad token":      {"digitalocean", token("dop_v1_bad"), finding{"credentials", wrong, denied, "401", "docs/backends/digitalocean.md#rights"}},
		"linode: a bad token":            {"linode", token("bad"), finding{"credentials", wrong, denied, "401", "docs/backends/linode.md#rights"}},
		"yandex: a bad token":            {"yandex", token("t1.bad"), finding{"credentials", wrong, denied, "Unauthenticated", "docs/backends/yandex.md#rights"}},
		"digitalocean: no token at all":  {"digitalocean", token(" "), finding{"credentials", wrong, "", "the token is empty", "docs/backends/digitalocean.md#credentials"}},
		"digitalocean: no volumes there": {"digitalocean", instead("region", "--region=nyc2"), finding{"region", wrong, fault.NoZone, "nyc2", "--region"}},
		"linode: no volumes there":       {"linode", instead("region", "--region=us-den-edge-1"), finding{"region", wrong, fault.NoZone, "us-den-edge-1", "--region"}},
		"yandex: no disks there":         {"yandex", instead("region", "--region=ru-central1-x"), finding{"region", wrong, fault.NoZone, "ru-central1-x", "--region"}},
		"digitalocean: a missing right": {"digitalocean", func(_ *testing.T, a accounts.Account, flags []string) []string {
			a.(accounts.DigitalOcean).SetRules(func(r *digitalocean.Rules) { r.Scopes = "block_storage:read" })
			return flags
		}, finding{"credentials", wrong, denied, "snapshot:read", "docs/backends/digitalocean.md#rights"}},
		"linode: a missing right": {"linode", func(_ *testing.T, a accounts.Account, flags []string) []string {
			a.(*accounts.Linode).SetRules(func(r *linode.Rules) { r.Scopes = []string{"volumes:read_write"} })
			return flags
		}, finding{"credentials", wrong, denied, "linodes:read_write", "docs/backends/linode.md#rights"}},
		"yandex: a missing right": {"yandex", func(_ *testing.T, a accounts.Account, flags []string) []string {
			a.(*accounts.Yandex).SetRules(func(r *yandex.Rules) { r.Rights = []string{"DiskService/List"} })
			return flags
		}, finding{"credentials", wrong, denied, "read the snapshots of folder", "docs/backends/yandex.md#rights"}},
		"yandex: a wrong folder":      {"yandex", instead("yandex-folder-id", "--yandex-folder-id=b1gsomebodyelses0000"), finding{"credentials", wrong, denied, "b1gsomebodyelses0000", "--yandex-folder-id"}},
		"linode: no metadata service": {"linode", instead("region", "--metadata-endpoint="+nowhere), finding{"metadata", wrong, "", "127.0.0.1:1", "REGION"}},
		"yandex: no metadata service": {"yandex", instead("yandex-folder-id", "--metadata-endpoint="+nowhere), finding{"metadata", wrong, "", "127.0.0.1:1", "--yandex-folder-id"}},
		"linode: no way to the API":   {"linode", instead("api-endpoint", "--api-endpoint="+nowhere), finding{"api", wrong, "", "127.0.0.1:1", "firewall"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := startAccount(t, tc.cloud, accounts.Options{Machines: 1})
			flags, err := account.Controller(t.TempDir())
			ok(t, err)
			report, exit := findings(t, append([]string{"--cloud=" + tc.cloud}, tc.plant(t, account, flags)...)...)
			tc.want.wants(t, report, exit)
			for _, e := range account.Exchanges() {
				if reads := e.Method == http.MethodGet || yandexRead.MatchString(e.Route); !reads {
					t.Errorf("doctor sends %s %s", e.Method, e.Route)
				}
			}
		})
	}
}
