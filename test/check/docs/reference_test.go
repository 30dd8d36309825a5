package docs_test

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var (
	flagLine      = regexp.MustCompile(`(?m)^  --([a-z-]+)`)
	namedMetric   = regexp.MustCompile(`\bcloudblock_[a-z_]+`)
	histogramPart = regexp.MustCompile(`_(bucket|count|sum)$`)
	metricName    = regexp.MustCompile(`"(cloudblock_[a-z_]+)"`)
)

// TestEveryFlagIsInTheReference: what --help prints of either program is in docs/operations.md.
func TestEveryFlagIsInTheReference(t *testing.T) {
	reference := read(t, filepath.Join(root, "docs/operations.md"))
	for program, flags := range flagsOf(t) {
		for _, flag := range flags {
			if !strings.Contains(reference, "| `--"+flag+"`") && !strings.Contains(reference, "| `--"+flag+" ") {
				t.Errorf("docs/operations.md does not list --%s of %s", flag, program)
			}
		}
	}
}

// flagsOf builds both programs and returns what --help prints of each.
func flagsOf(t *testing.T) map[string][]string {
	t.Helper()
	bin := t.TempDir()
	expect.Run(t, "go", "-C", root, "build", "-o", bin, "./cmd/controller", "./cmd/node")
	flags := map[string][]string{}
	for _, program := range []string{filepath.Join(bin, "controller"), filepath.Join(bin, "node")} {
		help := expect.Run(t, program, "--help")
		for _, found := range flagLine.FindAllStringSubmatch(help, -1) {
			flags[program] = append(flags[program], found[1])
		}
		if len(flags[program]) < 10 {
			t.Errorf("%s --help shows only %d flags:\n%s", program, len(flags[program]), help)
		}
	}
	return flags
}

// TestEachProgramKnowsTheSettingsOfBoth: one set of variables serves both programs, and a name that neither has is refused.
// An empty variable sets nothing, but its name counts.
func TestEachProgramKnowsTheSettingsOfBoth(t *testing.T) {
	programs := flagsOf(t)
	both := slices.Concat(slices.Collect(maps.Values(programs))...)
	for program := range programs {
		for _, flag := range slices.Compact(slices.Sorted(slices.Values(both))) {
			variable := "CLOUDBLOCK_FLAG_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
			cmd := exec.CommandContext(t.Context(), program)
			cmd.Env = []string{variable + "="}
			out, _ := cmd.CombinedOutput()
			without := flag == "node-id" || flag == "version"
			if refused := strings.Contains(string(out), variable); refused != without {
				t.Errorf("%s refuses %s: %t, want %t:\n%s", filepath.Base(program), variable, refused, without, out)
			}
		}
	}
}

// TestEveryMetricIsInTheReference: each metric that the programs register is in docs/monitoring.md and in the alerts or the
// dashboard, and each metric of the three is one that the programs register.
func TestEveryMetricIsInTheReference(t *testing.T) {
	const monitoring = "deploy/charts/cloudblock-csi/monitoring/"
	registered := map[string]bool{}
	walk(t, func(path string) {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			for _, found := range metricName.FindAllStringSubmatch(read(t, path), -1) {
				registered[found[1]] = true
			}
		}
	}, "cmd", "internal")
	if len(registered) < 10 {
		t.Errorf("found only %v", registered)
	}
	named := func(files ...string) map[string]bool {
		names := map[string]bool{}
		for _, file := range files {
			for _, name := range namedMetric.FindAllString(read(t, filepath.Join(root, file)), -1) {
				if base := histogramPart.ReplaceAllString(name, ""); registered[base] {
					name = base
				}
				names[name] = true
			}
		}
		return names
	}
	for what, names := range map[string]map[string]bool{
		"docs/monitoring.md":      named("docs/monitoring.md"),
		"alerts or the dashboard": named(monitoring+"rules.yaml", monitoring+"dashboard.json"),
	} {
		for name := range registered {
			if !names[name] {
				t.Errorf("%s is not in %s", name, what)
			}
		}
		for name := range names {
			if !registered[name] {
				t.Errorf("%s is in %s, and no program has it", name, what)
			}
		}
	}
}

// TestCompatibilityIsWhatTheTestsCheck: the oldest and newest Kubernetes of the page are those of the modules that decode
// the manifests, and the kernel is the one that the node program wants.
func TestCompatibilityIsWhatTheTestsCheck(t *testing.T) {
	page := read(t, filepath.Join(root, "docs/compatibility.md"))
	for file, fact := range map[string]struct{ pattern, sentence string }{
		"test/check/manifests/oldest/go.mod":    {`k8s\.io/api v0\.([0-9]+)\.`, "API of Kubernetes 1.%s and 1."},
		"test/check/manifests/go.mod":           {`k8s\.io/api v0\.([0-9]+)\.`, " and 1.%s, the oldest and the newest"},
		"test/check/manifests/policies_test.go": {`MajorMinor\(1, ([0-9]+)\)`, "compiled as Kubernetes 1.%s does"},
		"test/run/cluster/kubernetes/go.mod":    {`k8s\.io/kubernetes v1\.([0-9]+)\.`, "Tested: Kubernetes 1.%s and 1.36 "},
		"cmd/node/checks.go":                    {`oldestKernel = \[2\]int\{5, ([0-9]+)\}`, "Linux 5.%s or newer"},
	} {
		found := regexp.MustCompile(fact.pattern).FindStringSubmatch(read(t, filepath.Join(root, file)))
		if found == nil {
			t.Errorf("%s has no %s", file, fact.pattern)
			continue
		}
		if want := strings.Replace(fact.sentence, "%s", found[1], 1); !strings.Contains(page, want) {
			t.Errorf("docs/compatibility.md does not say %q, as %s does", want, file)
		}
	}
}
