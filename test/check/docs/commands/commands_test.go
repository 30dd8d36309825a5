package commands

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../../.."

// TestEveryCommandCanBeTried: what the documents tell users to run is understood, so that TestCommands of test/run/e2e/cluster
// can send it to an API server, and the files that it names are in the repository.
func TestEveryCommandCanBeTried(t *testing.T) {
	all, err := All(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Errorf("found only %d commands", len(all))
	}
	used := map[string]bool{}
	for _, c := range all {
		used[c.leftOut()] = true
		for name := range Placeholders {
			used[name] = used[name] || slices.ContainsFunc(c.Args, func(arg string) bool { return strings.Contains(arg, name) })
		}
		filled, err := c.Fill(Placeholders)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := filled.Harmless(); err != nil {
			t.Error(err)
		}
		for _, arg := range c.Args {
			if arg == "|" {
				t.Errorf("%s: a pipe is no argument", c)
			}
			if !strings.HasPrefix(arg, "deploy/") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, arg)); err != nil {
				t.Errorf("%s: %v", c, err)
			}
		}
	}
	for name := range Placeholders {
		if !used[name] {
			t.Errorf("no document has the placeholder %s", name)
		}
	}
	for name := range leftOut {
		if !used[name] {
			t.Errorf("no document has the command that is left out: %s", name)
		}
	}
}

// TestEveryWaitEnds: kubectl waits for 30 s where nothing else is said, which is shorter than the first pull of an image, and
// for a rollout without end.
func TestEveryWaitEnds(t *testing.T) {
	all, err := All(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		waits := c.Verb() == "wait" || c.Verb() == "rollout status"
		if waits && !slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--timeout=") }) {
			t.Errorf("%s has no --timeout", c)
		}
	}
}

func TestHarmless(t *testing.T) {
	for args, want := range map[string]string{
		"get pv":                        "get pv",
		"-n x delete daemonset y":       "-n x delete daemonset y --dry-run=server --ignore-not-found --wait=false",
		"exec app -- rm x":              "exec app -- rm x",
		"wait --for=delete pod/x":       "wait --for=delete pod/x --timeout=1s",
		"-n x rollout restart deploy/y": "-n x rollout status deploy/y --timeout=1m",
		"replace -f x":                  "",
		"-n x":                          "",
	} {
		got, err := Command{Args: strings.Fields(args)}.Harmless()
		if strings.Join(got, " ") != want || (err == nil) != (want != "") {
			t.Errorf("Harmless of %q = %q, %v, want %q", args, got, err, want)
		}
	}
}

func TestFill(t *testing.T) {
	values := map[string]string{"NODE": "node-1", "V": "pvc-1", "$pod": "pod/x"}
	for args, want := range map[string]string{
		"get pv V -A -o custom-columns=NAME:.metadata.name": "get pv pvc-1 -A -o custom-columns=NAME:.metadata.name",
		"exec $pod -l by=provisioner-NODE --x=CLUSTER_ID=a": "exec pod/x -l by=provisioner-node-1 --x=CLUSTER_ID=a",
		"get pv OTHER-THING": "",
	} {
		got, err := Command{Args: strings.Fields(args)}.Fill(values)
		if (err == nil) != (want != "") || err == nil && strings.Join(got.Args, " ") != want {
			t.Errorf("Fill of %q = %q, %v, want %q", args, got.Args, err, want)
		}
	}
}
