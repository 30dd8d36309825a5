package architecture_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cloudblock-csi/cloudblock-csi"

// rule says what the packages below a path may import beyond the standard library: our packages by
// their path below internal/, and others by a prefix of theirs. The longest matching path decides.
type rule struct{ ours, outside []string }

var (
	csiSpec    = "github.com/container-storage-interface/spec/lib/go/csi"
	grpc       = "google.golang.org/grpc"
	protobuf   = "google.golang.org/protobuf"
	zap        = "go.uber.org/zap"
	prometheus = "github.com/prometheus"
	unix       = "golang.org/x/sys/unix"
	mountUtils = "k8s.io/mount-utils"
	mountInfo  = "github.com/moby/sys/mountinfo"
	godo       = "github.com/digitalocean/godo"
	linodego   = "github.com/linode/linodego"
	yandexSDK  = "github.com/yandex-cloud/go-sdk/v2"
	yandexAPI  = "github.com/yandex-cloud/go-genproto"
	uuid       = "github.com/google/uuid"
	anything   = []string{""}
)

// sdks are what the backend of each cloud behind an API may import that no other may.
var sdks = map[string][]string{
	"digitalocean": {godo},
	"linode":       {linodego},
	"yandex":       {yandexSDK, yandexAPI, grpc, protobuf, uuid},
}

// The import graph is the architecture: docs/contributing/architecture.md explains it, this table holds it.
// A package that no row names may import nothing of ours and nothing from outside.
var rules = withClouds(map[string]rule{
	"internal/fault":             {},
	"internal/cloud":             {ours: []string{"fault"}},
	"internal/profile":           {},
	"internal/wait":              {},
	"internal/host":              {ours: []string{"fault", "wait"}, outside: []string{unix, mountInfo}},
	"internal/telemetry":         {outside: []string{zap}},
	"internal/cloud/middleware":  {ours: []string{"cloud", "fault", "wait"}},
	"internal/cloud/memory":      {ours: []string{"cloud", "fault"}},
	"internal/cloud/cloudtest":   {ours: []string{"cloud", "fault"}, outside: []string{"go.uber.org/goleak"}},
	"internal/pool":              {ours: []string{"fault", "wait"}, outside: []string{unix}},
	"internal/pool/extents":      {ours: []string{"pool"}, outside: []string{unix}},
	"internal/pool/files":        {ours: []string{"fault", "host", "pool", "pool/extents"}, outside: []string{unix}},
	"internal/pool/lvm":          {ours: []string{"fault", "pool", "wait"}, outside: []string{unix}},
	"internal/pool/pools":        {ours: []string{"fault", "pool", "pool/files", "pool/lvm", "wait"}},
	"internal/cloud/local":       {ours: []string{"cloud", "fault", "profile", "pool", "pool/pools"}, outside: []string{zap}},
	"internal/driver/doctor":     {ours: []string{"driver", "fault", "pool", "pool/files", "pool/pools"}},
	"internal/driver/relocate":   {ours: []string{"driver", "fault"}},
	"internal/cloud/budget":      {ours: []string{"cloud", "fault"}, outside: []string{prometheus}},
	"internal/cloud/tags":        {ours: []string{"cloud", "fault"}},
	"internal/cloud/ops":         {ours: []string{"cloud/budget", "fault", "telemetry", "wait"}, outside: []string{prometheus}},
	"internal/cloud/api":         {ours: []string{"cloud", "fault", "cloud/ops", "cloud/budget", "telemetry"}, outside: []string{zap}},
	"internal/cloud/block":       {ours: []string{"cloud", "fault", "cloud/ops", "cloud/budget", "wait"}, outside: []string{zap}},
	"internal/machine":           {ours: []string{"fault", "wait"}},
	"internal/driver":            {ours: []string{"fault", "profile", "driver/compat", "telemetry"}, outside: []string{csiSpec, grpc, protobuf, zap, prometheus}},
	"internal/driver/compat":     {ours: []string{"profile"}},
	"internal/driver/controller": {ours: []string{"driver", "driver/compat", "cloud", "profile", "fault"}, outside: []string{csiSpec, protobuf, zap}},
	"internal/driver/node": {
		ours:    []string{"driver", "mounter", "mounter/format", "mounter/mount", "mounter/device", "mounter/luks", "host", "fault", "wait"},
		outside: []string{csiSpec, protobuf, zap},
	},
	"internal/mounter":        {ours: []string{"fault"}},
	"internal/mounter/format": {ours: []string{"fault", "host", "mounter"}, outside: []string{unix}},
	"internal/mounter/mount":  {ours: []string{"fault", "host", "mounter", "mounter/format", "wait"}, outside: []string{mountUtils, mountInfo, unix}},
	"internal/mounter/device": {ours: []string{"fault", "host", "pool", "pool/files", "pool/lvm", "pool/pools", "wait"}, outside: []string{unix}},
	"internal/mounter/check":  {ours: []string{"fault", "host", "mounter", "mounter/format", "wait"}, outside: []string{unix}},
	"internal/mounter/luks":   {ours: []string{"fault", "host", "mounter", "mounter/format"}, outside: []string{unix}},
	"cmd/controller": {
		ours: []string{
			"fault", "driver/doctor", "driver/relocate", "driver", "driver/controller", "cloud", "cloud/middleware", "cloud/local",
			"pool", "pool/pools", "machine", "cloud/budget", "cloud/block", "cloud/ops", "cloud/api", "profile", "wait",
		},
		outside: anything,
	},
	"cmd/node": {
		ours:    []string{"fault", "driver/doctor", "driver", "driver/node", "mounter/check", "mounter/mount", "telemetry", "mounter/device", "pool", "pool/files", "pool/pools", "machine", "profile", "wait"},
		outside: []string{csiSpec, grpc, zap, prometheus},
	},
	"build/notices": {},
	"test":          {ours: anything, outside: anything},
})

// withClouds adds a row for each backend in sdks, and lets the controller import it.
func withClouds(rows map[string]rule) map[string]rule {
	controller := rows["cmd/controller"]
	for name, sdk := range sdks {
		controller.ours = append(controller.ours, "cloud/"+name)
		rows["internal/cloud/"+name] = rule{
			ours:    []string{"cloud", "fault", "profile", "cloud/ops", "cloud/api", "cloud/block", "cloud/budget", "cloud/tags", "telemetry", "wait"},
			outside: append([]string{zap}, sdk...),
		}
	}
	rows["cmd/controller"] = controller
	return rows
}

// forTests may be imported by any _test.go file in addition.
var forTests = []string{"cloud/cloudtest", "cloud/memory"}

type goPackage struct {
	ImportPath string
	Standard   bool
	Imports    []string
	GoFiles    []string
}

func TestImportRules(t *testing.T) {
	for _, pkg := range list(t, "./...") {
		path := strings.TrimPrefix(pkg.ImportPath, module+"/")
		allowed, found := ruleOf(path)
		if !found {
			t.Errorf("%s is in no row of the table of import rules", path)
			continue
		}
		for _, imported := range pkg.Imports {
			if !allowed.permits(imported) {
				t.Errorf("%s imports %s", path, imported)
			}
		}
	}
}

// TestOnlyTestsImportTestPackages: the conformance suite and the reference backend never reach a
// program.
func TestOnlyTestsImportTestPackages(t *testing.T) {
	banned := []string{module + "/test/"}
	for _, path := range forTests {
		banned = append(banned, module+"/internal/"+path)
	}
	linksNone(t, "./cmd/controller", banned)
	linksNone(t, "./cmd/node", banned)
}

// TestNodeIsSmall: the node program links nothing of the clouds, no SDK and no Kubernetes client.
func TestNodeIsSmall(t *testing.T) {
	banned := []string{"k8s.io/client-go", "k8s.io/api/", "k8s.io/apimachinery", module + "/internal/cloud"}
	for _, sdk := range sdks {
		for _, path := range sdk {
			if parts := strings.Split(path, "/"); parts[0] == "github.com" {
				banned = append(banned, "github.com/"+parts[1]+"/")
			}
		}
	}
	if len(banned) < 4+len(sdks) {
		t.Fatalf("only %q are banned: a backend has no SDK", banned)
	}
	linksNone(t, "./cmd/node", banned)
}

// TestControllerMountsNothing: the controller links no mount code.
func TestControllerMountsNothing(t *testing.T) {
	linksNone(t, "./cmd/controller", []string{mountUtils, module + "/internal/mounter"})
}

// linksNone: no package that a program links begins with one of the banned paths.
func linksNone(t *testing.T, program string, banned []string) {
	t.Helper()
	for _, pkg := range list(t, "-deps", program) {
		if slices.ContainsFunc(banned, func(path string) bool { return strings.HasPrefix(pkg.ImportPath, path) }) {
			t.Errorf("%s links %s", program, pkg.ImportPath)
		}
	}
}

func ruleOf(path string) (rule, bool) {
	for p := path; p != "."; {
		if r, ok := rules[p]; ok {
			return r, p == path || p == "test"
		}
		cut := strings.LastIndex(p, "/")
		if cut < 0 {
			break
		}
		p = p[:cut]
	}
	return rule{}, false
}

func (r rule) permits(imported string) bool {
	ours, isOurs := strings.CutPrefix(imported, module+"/")
	switch {
	case isOurs && slices.Equal(r.ours, anything):
		return true
	case isOurs:
		return slices.Contains(r.ours, strings.TrimPrefix(ours, "internal/"))
	case !strings.Contains(strings.SplitN(imported, "/", 2)[0], "."):
		return true // the standard library
	}
	return slices.ContainsFunc(r.outside, func(prefix string) bool {
		return prefix == "" || imported == prefix || strings.HasPrefix(imported, prefix+"/")
	})
}

func list(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Standard,Imports,GoFiles"}, args...)...)
	cmd.Dir = "../../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, &stderr)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg goPackage
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		if !pkg.Standard {
			packages = append(packages, pkg)
		}
	}
}
