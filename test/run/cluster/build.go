package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// build is one run of the Go compiler; when everything is current it is done in seconds.
type build struct {
	what     string
	module   string // folder below the project
	command  string // of go; `build -v` names the packages
	args     []string
	outputs  []string // names below bin
	packages int      // compiled when nothing is cached, for the progress
	cold     string   // how long that takes on two cores
}

const (
	kubernetesModule = "test/run/cluster/kubernetes"
	sidecarsModule   = "test/run/cluster/sidecars"
	// metadataModule is apart from the other sidecars: external-snapshot-metadata is built with mocks that need an older CSI.
	metadataModule = "test/run/cluster/metadata"
)

// clusterBuilds make every program of a cluster; versions are pinned by the modules' go.mod.
func clusterBuilds(ctx context.Context, l layout) ([]build, error) {
	flags, err := kubernetesFlags(ctx, l)
	if err != nil {
		return nil, err
	}
	bin := []string{"-o", l.cluster("bin") + "/"}
	return []build{
		{
			what: "Kubernetes", module: kubernetesModule, command: "build",
			args: slices.Concat([]string{"-v"}, flags, bin, []string{"tool", "./registrar"}),
			outputs: []string{
				"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl", "kube-log-runner", "kubelet", "agnhost", "registrar",
			},
			packages: 2850, cold: "4 to 25 minutes, and downloads about 300 MB",
		},
		{
			what: "the sidecars", module: sidecarsModule, command: "build",
			args:     slices.Concat([]string{"-v", "-trimpath", "-ldflags", "-s -w"}, bin, []string{"tool"}),
			outputs:  []string{"csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter", "snapshot-controller"},
			packages: 1200, cold: "2 to 15 minutes",
		},
		{
			what: "the sidecar for changed blocks and its clients", module: metadataModule, command: "build",
			args:     slices.Concat([]string{"-v", "-trimpath", "-ldflags", "-s -w"}, bin, []string{"tool", "./metadatatools"}),
			outputs:  []string{"csi-snapshot-metadata", "metadatatools"},
			packages: 800, cold: "1 to 10 minutes",
		},
		{
			what: "pause", module: ".", command: "build", packages: 1, cold: "a second", outputs: []string{"pause"},
			args: slices.Concat([]string{"-trimpath", "-ldflags", "-s -w"}, bin, []string{"./test/run/cluster/pause"}),
		},
	}, nil
}

// suiteBuild makes the upstream storage suite.
func suiteBuild(ctx context.Context, l layout) (build, error) {
	flags, err := kubernetesFlags(ctx, l)
	return build{
		what: "the upstream storage suite", module: kubernetesModule, command: "test", outputs: []string{"e2e-storage.test"},
		args:     slices.Concat([]string{"-c", "-vet=off"}, flags, []string{"-o", l.bin("e2e-storage.test"), "./storagesuite"}),
		packages: 300, cold: "1 to 5 minutes once Kubernetes is built",
	}, err
}

// kubernetesFlags choose the release of Kubernetes, and tell the programs their version, as a release's do; else they call
// themselves v0.0.0, which clients and the suite would take for very old.
func kubernetesFlags(ctx context.Context, l layout) ([]string, error) {
	modfile, err := kubernetesModfile(l)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "list", modfile, "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	cmd.Dir = l.source(kubernetesModule)
	version, err := output(cmd)
	if err != nil {
		return nil, err
	}
	version = strings.TrimSpace(version)
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) != 3 {
		return nil, fmt.Errorf("k8s.io/kubernetes has a version of another form: %q", version)
	}
	const variables = "k8s.io/component-base/version."
	return []string{modfile, "-trimpath", "-ldflags", fmt.Sprintf("-s -w -X %sgitVersion=%s -X %sgitMajor=%s -X %sgitMinor=%s",
		variables, version, variables, parts[0], variables, parts[1])}, nil
}

// kubernetesModfile returns the go command's flag for the module file of the wanted release: go.mod has the newest one, and each
// older one has a file that is named after it.
func kubernetesModfile(l layout) (string, error) {
	if l.kubernetes == "" {
		return "-modfile=go.mod", nil
	}
	name := l.kubernetes + ".mod"
	if _, err := os.Stat(l.source(kubernetesModule, name)); err != nil {
		return "", fmt.Errorf("KUBERNETES=%s: %s has go.mod for the newest Kubernetes and one file for each older one: %w", l.kubernetes, kubernetesModule, err)
	}
	return "-modfile=" + name, nil
}

// run compiles, and shows how far it is when that takes long.
func (b build) run(ctx context.Context, l layout, show *steps) error {
	if slices.ContainsFunc(b.outputs, func(name string) bool {
		_, err := os.Stat(l.bin(name))
		return errors.Is(err, fs.ErrNotExist)
	}) {
		show.say("%s: not built yet; with nothing cached that takes %s on two cores", b.what, b.cold)
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{b.command}, b.args...)...)
	cmd.Dir = l.source(b.module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	var compiled lineCounter
	cmd.Stderr = &compiled
	return show.follow("built "+b.what, func() string {
		if n := compiled.lines.Load(); n > 0 {
			return fmt.Sprintf(", %d packages of at most %d", n, b.packages)
		}
		return ""
	}, func() error {
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%w\n%s", err, compiled.end)
		}
		return nil
	})
}

// lineCounter counts the packages that the compiler names, and keeps the end for when it fails.
type lineCounter struct {
	lines atomic.Int64
	end   []byte
}

func (c *lineCounter) Write(p []byte) (int, error) {
	c.lines.Add(int64(bytes.Count(p, []byte("\n"))))
	c.end = append(c.end, p...)
	c.end = c.end[max(0, len(c.end)-4000):]
	return len(p), nil
}

const (
	// oldTag names the images of an older build on the nodes, currentTag those of the manifests.
	oldTag     = "old"
	currentTag = "unreleased"
)

var programs = []string{"controller", "node"}

func imageName(program, tag string) string {
	return "ghcr.io/cloudblock-csi/" + program + ":" + tag
}

// old gives the nodes of the running cluster the images of an older build, under the tag `old`. Without a reference it is
// the newest tag's, and where there is none, the images that the nodes have get this tag too.
func old(ctx context.Context, l layout, args []string) error {
	flags := flag.NewFlagSet("cluster old", flag.ContinueOnError)
	ref := flags.String("ref", "", "the `commit` or tag to build")
	if err := flags.Parse(args); err != nil {
		return err
	}
	held, err := lock(l)
	if err != nil {
		return err
	}
	defer held.Close()
	c := &cluster{layout: l, show: &steps{out: os.Stdout, begin: time.Now()}}
	if c.state, err = readState(l); err != nil {
		return err
	}
	if !c.state.running() {
		return errors.New("no cluster is running")
	}
	if err := c.findNodes(); err != nil {
		return err
	}
	if *ref == "" {
		tags, err := output(c.git(ctx, "tag", "--sort=-creatordate"))
		if err != nil {
			return err
		}
		*ref, _, _ = strings.Cut(tags, "\n")
	}
	if *ref == "" {
		c.show.say("the repository has no tag: the old images are the present ones under another name")
		return c.onEach(func(n *node) error { return n.tagOld(ctx) })
	}
	return c.importOld(ctx, *ref)
}

func (l layout) git(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "git", append([]string{"-C", l.project}, args...)...)
}

// tagOld gives the images of the manifests a second name.
func (n *node) tagOld(ctx context.Context) error {
	for _, program := range programs {
		if err := runCommand(n.ctr(ctx, "images", "tag", "--force", imageName(program, currentTag), imageName(program, oldTag))); err != nil {
			return err
		}
	}
	return nil
}

// importOld builds the images of a reference in a work tree of its own, with that tree's own script, and imports them.
// What the script caches is kept apart from the present images, so that neither replaces the other's archives.
func (c *cluster) importOld(ctx context.Context, ref string) (err error) {
	commit, err := output(c.git(ctx, "rev-parse", "--verify", ref+"^{commit}"))
	if err != nil {
		return err
	}
	commit = strings.TrimSpace(commit)
	parent, err := os.MkdirTemp("", "cloudblock-old-")
	if err != nil {
		return err
	}
	tree := filepath.Join(parent, "tree")
	if err := runCommand(c.git(ctx, "worktree", "add", "--detach", tree, commit)); err != nil {
		return errors.Join(err, os.RemoveAll(parent))
	}
	defer func() {
		cleanup := context.WithoutCancel(ctx)
		err = errors.Join(err, runCommand(c.git(cleanup, "worktree", "remove", "--force", tree)), os.RemoveAll(parent))
	}()
	cache := filepath.Join(c.cache, "old")
	err = c.show.do("built the images of "+ref+" ("+commit[:12]+")", func() error {
		cmd := exec.CommandContext(ctx, filepath.Join(tree, "build/images-local.sh"))
		cmd.Dir = tree
		cmd.Env = append(os.Environ(), "CACHE="+cache, "REGISTRY=", "TAG="+oldTag, "VERSION=", "COMMIT=")
		return runCommand(cmd)
	})
	if err != nil {
		return err
	}
	return c.show.do("imported them under the tag "+oldTag, func() error {
		return c.onEach(func(n *node) error {
			var names []string
			for _, program := range programs {
				if err := n.importArchive(ctx, filepath.Join(cache, "images", program+".tar")); err != nil {
					return err
				}
				names = append(names, imageName(program, oldTag))
			}
			return n.lacks(ctx, names)
		})
	})
}
