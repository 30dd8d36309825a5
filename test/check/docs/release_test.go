package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var jobLine = regexp.MustCompile(`(?m)^  ([a-z0-9-]+):\n`)

// jobs returns the text of each job of a workflow.
func jobs(t *testing.T, workflow string) map[string]string {
	t.Helper()
	_, text, found := strings.Cut(workflows(t)[workflow], "\njobs:\n")
	if !found {
		t.Fatalf("%s has no jobs", workflow)
	}
	all := map[string]string{}
	starts := jobLine.FindAllStringSubmatchIndex(text, -1)
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		all[text[at[2]:at[3]]] = text[at[1]:end]
	}
	return all
}

// made returns the targets that a job makes, in order.
func made(t *testing.T, job string) []string {
	t.Helper()
	var targets []string
	for _, m := range makeLine.FindAllStringSubmatch(job, -1) {
		targets = append(targets, wordsOf(t, m[1], job)...)
	}
	return targets
}

// TestOnlyWhatWasTestedIsPublished: one job builds and tests the images, and another one, which alone may write, publishes these after
// all tests have passed and somebody has approved.
func TestOnlyWhatWasTestedIsPublished(t *testing.T) {
	all := jobs(t, "release.yaml")
	publish, images := all["publish"], all["images"]
	for name, job := range all {
		if writes := strings.Contains(job, ": write"); writes != (name == "publish") {
			t.Errorf("the job %s may write: %t", name, writes)
		}
		if !strings.Contains(job, "cache: false") {
			t.Errorf("the job %s uses a cache, which other workflows write", name)
		}
	}
	if got := made(t, images); !slices.Equal(got, []string{"release-images"}) || !strings.Contains(images, "ubuntu-24.04-arm") || strings.Contains(images, "login") {
		t.Errorf("the job images makes %q, want release-images, on both architectures and without a registry", got)
	}
	want := []string{"release-publish", "release-files", "release-github"}
	if got := made(t, publish); !slices.Equal(got, want) {
		t.Errorf("the job publish makes %q, want %q", got, want)
	}
	for _, line := range []string{"    needs: [verify, images]\n", "    environment: release\n", "        pattern: images-*\n"} {
		if !strings.Contains(publish, line) {
			t.Errorf("the job publish lacks %q", line)
		}
	}
	if got := made(t, all["verify"]); !slices.Contains(got, "verify") || !slices.Contains(got, "vulncheck") {
		t.Errorf("the job verify makes %q", got)
	}
}

// TestACandidateIsNoRelease: a version with a hyphen is a pre-release and never the latest.
func TestACandidateIsNoRelease(t *testing.T) {
	for tag, want := range map[string]string{
		"v0.1.0": "--notes-file", "v0.1.0-rc.1": "--prerelease --latest=false ", "v0.1": "", "latest": "", "v0.1.0-": "", "v0.1x.0": "", "v0.1.0-rc.": "", "v99.0.0": "",
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "build/github-release.sh"), "--print")
		cmd.Env = append(os.Environ(), "TAG="+tag)
		out, err := cmd.CombinedOutput()
		command, _, _ := strings.Cut(string(out), "\n")
		if fails := err != nil; fails != (want == "") || !fails && !strings.Contains(command, "--verify-tag "+want) {
			t.Errorf("%s: %v, %q, want %q", tag, err, out, want)
		}
	}
}

// TestSignaturesAreByDigest: a tag can be moved between a push and its signature.
func TestSignaturesAreByDigest(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "build/cosign.sh"), "sign", "127.0.0.1:1/controller:v0.1.0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "names no digest") {
		t.Errorf("cosign.sh sign of a tag = %v, %q", err, out)
	}
}

// TestWorkflows: runs of the branch main are not cancelled, what compiles uses the cache of all go.sum or says why not, also as root,
// and no change reaches a real account.
func TestWorkflows(t *testing.T) {
	cancel := regexp.MustCompile(`cancel-in-progress: (.*)`)
	goStep := regexp.MustCompile(`uses: actions/setup-go@.*\n\s+with:\n\s+go-version-file: go.mod\n\s+(.*)\n`)
	for name, text := range workflows(t) {
		if c := cancel.FindStringSubmatch(text); c != nil && c[1] != "${{ github.event_name == 'pull_request' }}" {
			t.Errorf("%s cancels if %s", name, c[1])
		}
		steps := goStep.FindAllStringSubmatch(text, -1)
		if want := strings.Count(text, "uses: actions/setup-go@"); len(steps) != want {
			t.Errorf("%s has %d steps with a cache or without, want %d", name, len(steps), want)
		}
		for _, s := range steps {
			if s[1] != `cache-dependency-path: "**/go.sum"` && !strings.HasPrefix(s[1], "cache: false # ") {
				t.Errorf("%s sets up Go with %q", name, s[1])
			}
		}
		for job, text := range jobs(t, name) {
			if strings.Contains(text, "secrets[") && (!strings.Contains(text, "environment: real-accounts") ||
				!strings.Contains(text, "if: github.event_name == 'schedule' || github.event_name == 'workflow_dispatch'\n")) {
				t.Errorf("%s: the job %s has a token of an account and runs for changes, or without an environment", name, job)
			}
		}
	}
}

// TestDependabotReadsEveryModule: its configuration names each folder with a go.mod, and finds the images by their names in FROM.
func TestDependabotReadsEveryModule(t *testing.T) {
	config := read(t, filepath.Join(root, ".github/dependabot.yml"))
	var want []string
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*go.mod").Output()
	if err != nil {
		t.Skipf("no git: %v", err)
	}
	for _, file := range strings.Fields(string(out)) {
		want = append(want, "/"+strings.TrimPrefix(filepath.Dir(file), "."))
	}
	for _, folder := range want {
		if !regexp.MustCompile(`(?m)(^  - |\[|, )` + folder + `(\]|,|$)`).MatchString(config) {
			t.Errorf("dependabot.yml does not name the module in %s", folder)
		}
	}
	dockerfiles, err := filepath.Glob(filepath.Join(root, "build/*.Dockerfile"))
	if err != nil || len(dockerfiles) != 3 {
		t.Fatalf("%q, %v", dockerfiles, err)
	}
	for _, file := range dockerfiles {
		if text := read(t, file); regexp.MustCompile(`(?m)^FROM .*\$\{`).MatchString(text) || !strings.Contains(text, "docker.io/library/golang:") {
			t.Errorf("%s hides its base from Dependabot in a variable", file)
		}
	}
}
