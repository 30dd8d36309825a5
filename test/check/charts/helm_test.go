package charts_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// helmPath is the program that go.mod pins, built once.
var helmPath = sync.OnceValues(func() (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", "tool", "-n", "helm") //nolint:noctx // it serves all tests
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", errors.New(stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
})

func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := helmPath()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), program, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+filepath.Join(home, "none"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// installed are the values of an installation.
func installed(cloud string) string {
	if cloud == "local" {
		return "cloud=local"
	}
	return "cloud=" + cloud + ",settings.clusterId=" + clusterID
}

// TestLint: Helm has nothing to say of the chart, which without values does not render, with those of ci.
func TestLint(t *testing.T) {
	for _, cloud := range clouds(t) {
		out, err := helm(t, "lint", "--strict", chartDir, "--values", filepath.Join(chartDir, "ci", cloud+"-values.yaml"))
		if err != nil || strings.Contains(out, "[INFO]") {
			t.Errorf("%s: %v\n%s", cloud, err, out)
		}
	}
}

// TestHelmRefuses: what an operator reads who has forgotten the cloud or the cluster's id, or has an old cluster.
func TestHelmRefuses(t *testing.T) {
	oldest := regexp.MustCompile(`\| the overlays of clouds \| (1\.\d+) \|`).FindStringSubmatch(read(t, "../../../docs/compatibility.md"))
	if oldest == nil {
		t.Fatal("docs/compatibility.md does not say which Kubernetes the overlays need")
	}
	tests := map[string]struct {
		args []string
		want string
	}{
		"no cloud":       {nil, "at '/cloud': value must be one of '" + strings.Join(clouds(t), "', '") + "'"},
		"no cluster id":  {[]string{"--set", "cloud=linode"}, "settings.clusterId is required: a name that no other cluster of the account has"},
		"an old cluster": {[]string{"--set", "cloud=linode", "--kube-version", "1.29.15"}, "chart requires kubeVersion: >=" + oldest[1] + ".0-0"},
	}
	for name, tc := range tests {
		out, err := helm(t, append([]string{"template", "cloudblock", chartDir}, tc.args...)...)
		if err == nil || !strings.Contains(out, tc.want) {
			t.Errorf("%s: helm answers %v, want %q in\n%s", name, err, tc.want, out)
		}
	}
	if out, err := helm(t, "template", "cloudblock", chartDir, "--set", installed("linode"), "--kube-version", oldest[1]+".2-vendor.1"); err != nil {
		t.Errorf("the oldest Kubernetes, with a suffix: %v\n%s", err, out)
	}
}

// TestThePackageIsComplete: an archive has what the templates read, and no more than a chart needs.
func TestThePackageIsComplete(t *testing.T) {
	dir := t.TempDir()
	if out, err := helm(t, "package", chartDir, "--destination", dir, "--version", "9.8.7", "--app-version", "v9.8.7"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	archive := filepath.Join(dir, "cloudblock-csi-9.8.7.tgz")
	out, err := helm(t, "template", "cloudblock", archive, "--set", installed("linode"))
	if err != nil || !strings.Contains(out, "ghcr.io/cloudblock-csi/controller:v9.8.7") {
		t.Errorf("the archive renders to %v\n%s", err, out)
	}
	file, err := os.Open(archive)
	must(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	must(t, err)
	expected := regexp.MustCompile(`^cloudblock-csi/(Chart\.yaml|README\.md|values\.yaml|values\.schema\.json|\.helmignore|clouds/[a-z]+\.yaml|monitoring/[a-z]+\.(yaml|json)|templates/(tests/)?[_a-zA-Z-]+\.(yaml|tpl|txt))$`)
	reader := tar.NewReader(unzipped)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		if !expected.MatchString(header.Name) {
			t.Errorf("the archive has %s", header.Name)
		}
	}
}

// TestAChartForEachTag: what names.sh takes as a tag of the images makes a chart, whose labels the API server takes.
func TestAChartForEachTag(t *testing.T) {
	label := regexp.MustCompile(`(?m)^ +(helm\.sh/chart|app\.kubernetes\.io/version): "?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"?$`)
	for tag, want := range map[string]string{
		"v1.2.3-14-g0123abc-dirty": "1.2.3-14-g0123abc-dirty", "v2024.01.05": "0.0.0-gv2024-01-05", "_a_branch-": "0.0.0-g-a-branch-",
		strings.Repeat("a-", 31): "0.0.0-g" + strings.Repeat("a-", 31),
	} {
		dir := filepath.Join(t.TempDir(), "chart")
		cmd := exec.CommandContext(t.Context(), "../../../build/chart.sh", dir)
		cmd.Env = append(os.Environ(), "TAG="+tag)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", tag, err, out)
			continue
		}
		out, err := helm(t, "template", "cloudblock", filepath.Join(dir, "cloudblock-csi-"+want+".tgz"), "--set", "cloud=local", "--show-only", "templates/csidriver.yaml")
		if err != nil || len(label.FindAllString(out, -1)) != 2 {
			t.Errorf("%s: %v, and the labels are in\n%s", tag, err, out)
		}
	}
}
