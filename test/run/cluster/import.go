package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// importImages gives every node the images that the manifests, the examples and the tests name. What
// the nodes have of an earlier run, and has not changed since, is left out.
func (c *cluster) importImages(ctx context.Context) error {
	folders, err := manifests(ctx, c.layout, c.cloud)
	if err != nil {
		return err
	}
	rendered, err := renderAll(ctx, c.layout, folders)
	if err != nil {
		return err
	}
	stock, err := stockImages(c.layout)
	if err != nil {
		return err
	}
	named := imagesNamed(rendered)
	if err := c.importMade(ctx, slices.Concat(stock, sidecarImages(c.layout, append(named, snapshotMetadataImage)))); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(c.cache, "images", "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		stamp, err := stampOf(archive)
		if err != nil {
			return err
		}
		if err := c.importArchive(ctx, archive, stamp); err != nil {
			return err
		}
	}
	return c.onEach(func(n *node) error { return n.lacks(ctx, named) })
}

// importMade writes the images that are made here into one archive and imports it.
func (c *cluster) importMade(ctx context.Context, images []image) error {
	stamp, err := stampOfImages(images)
	if err != nil {
		return err
	}
	archive := c.run("images.tar")
	if c.state.Imported[archive] == stamp {
		return nil
	}
	if err := saveImages(archive, images); err != nil {
		return err
	}
	// Afterwards every node has its own copy.
	return errors.Join(c.importArchive(ctx, archive, stamp), os.Remove(archive))
}

// importArchive gives all nodes the images of an archive, unless they have it with this stamp.
func (c *cluster) importArchive(ctx context.Context, path, stamp string) error {
	if c.state.Imported[path] == stamp {
		return nil
	}
	if err := c.onEach(func(n *node) error { return n.importArchive(ctx, path) }); err != nil {
		return err
	}
	if c.state.Imported == nil {
		c.state.Imported = map[string]string{}
	}
	c.state.Imported[path] = stamp
	return c.state.save(c.layout)
}

// stampOfImages changes when what the images are made of changes.
func stampOfImages(images []image) (string, error) {
	var all strings.Builder
	for _, img := range images {
		fmt.Fprintln(&all, img.tags, img.entrypoint, img.command, len(img.files))
		for _, f := range img.files {
			if f.source == "" {
				continue
			}
			stamp, err := stampOf(f.source)
			if err != nil {
				return "", err
			}
			fmt.Fprintln(&all, f.name, stamp)
		}
	}
	sum := sha256.Sum256([]byte(all.String()))
	return hex.EncodeToString(sum[:]), nil
}

// stampOf changes when a file's content does. Its time would not do: `go build` sets that also when
// it finds the file up to date.
func stampOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	digest := sha256.New()
	_, err = io.Copy(digest, file)
	return hex.EncodeToString(digest.Sum(nil)), err
}
