package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestArchiveHoldsWholeImages(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("the program"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := writeArchive(&out, []image{
		{tags: []string{"example/one:1", "example/alias:2"}, entrypoint: []string{"/usr/bin/one"}, files: []file{
			{name: "usr/bin/one", source: program},
			{name: "bin/sh", link: "/usr/bin/one"},
			{name: "tmp", mode: 0o1777},
		}},
		{tags: []string{"example/empty:1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	archive := readTar(t, out.Bytes())
	var manifest []imageManifest
	decode(t, archive["manifest.json"].text, &manifest)
	if len(manifest) != 2 || !slices.Equal(manifest[0].RepoTags, []string{"example/one:1", "example/alias:2"}) {
		t.Fatalf("manifest.json = %+v", manifest)
	}
	for _, entry := range manifest {
		var config imageConfig
		decode(t, archive[entry.Config].text, &config)
		layer := archive[entry.Layers[0]].text
		sum := sha256.Sum256(layer)
		if want := []string{"sha256:" + hex.EncodeToString(sum[:])}; !slices.Equal(config.RootFS.DiffIDs, want) {
			t.Errorf("%s: diff ids %v, want %v", entry.RepoTags[0], config.RootFS.DiffIDs, want)
		}
	}
	layer := readTar(t, archive[manifest[0].Layers[0]].text)
	if got := slices.Sorted(maps.Keys(layer)); !slices.Equal(got, []string{"bin/", "bin/sh", "tmp/", "usr/", "usr/bin/", "usr/bin/one"}) {
		t.Errorf("the layer holds %v", got)
	}
	one := layer["usr/bin/one"]
	if string(one.text) != "the program" || one.header.Mode != 0o755 {
		t.Errorf("the program is %q with mode %o", one.text, one.header.Mode)
	}
	if got := layer["bin/sh"].header.Linkname; got != "/usr/bin/one" {
		t.Errorf("the link leads to %q", got)
	}
	if got := layer["tmp/"].header.Mode; got != 0o1777 {
		t.Errorf("tmp has mode %o", got)
	}
}

// A node that has an image already must not get it again under another digest.
func TestArchiveIsTheSameEachTime(t *testing.T) {
	images := []image{{tags: []string{"example/one:1"}, files: []file{{name: "a/b/c"}}}}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := writeArchive(out, images); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of the same images differ")
	}
}

func TestArchiveOfAMissingFileNamesImageAndFile(t *testing.T) {
	err := writeArchive(io.Discard, []image{{tags: []string{"example/one:1"}, files: []file{{name: "a", source: "/nowhere/a"}}}})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("writeArchive = %v, want that the file does not exist", err)
	}
}

type tarEntry struct {
	header *tar.Header
	text   []byte
}

func readTar(t *testing.T, text []byte) map[string]tarEntry {
	t.Helper()
	entries := map[string]tarEntry{}
	for reader := tar.NewReader(bytes.NewReader(text)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := entries[header.Name]; twice {
			t.Errorf("%s is there twice", header.Name)
		}
		entries[header.Name] = tarEntry{header, content}
	}
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}
