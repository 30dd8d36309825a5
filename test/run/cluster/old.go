package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

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
