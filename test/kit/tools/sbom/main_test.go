package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// archive writes a tar archive of names and contents.
func archive(t *testing.T, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(files); i += 2 {
		err := w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = w.Write([]byte(files[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// purls runs the program on an image of these files, and returns the addresses of its components.
func purls(t *testing.T, files ...string) ([]string, error) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image.tar")
	manifest := `[{"RepoTags": ["registry.example.com:5000/node:v1"], "Layers": ["layer.tar"]}]`
	if err := os.WriteFile(image, archive(t, "layer.tar", string(archive(t, files...)), "manifest.json", manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(image, &out); err != nil {
		return nil, err
	}
	var bom struct {
		BOMFormat string
		Metadata  struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Purl string }
	}
	if err := json.Unmarshal(out.Bytes(), &bom); err != nil {
		t.Fatal(err)
	}
	if c := bom.Metadata.Component; bom.BOMFormat != "CycloneDX" || c.Name != "registry.example.com:5000/node" || c.Version != "v1" {
		t.Errorf("the document is about %+v", bom)
	}
	var all []string
	for _, c := range bom.Components {
		all = append(all, c.Purl)
	}
	return all, nil
}

func TestImageIsItsPackagesAndModules(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self) // a Go program with modules
	if err != nil {
		t.Fatal(err)
	}
	got, err := purls(t,
		"usr/lib/os-release", "ID=debian\nVERSION_ID=\"13\"\n",
		"var/lib/dpkg/status.d/libx", "Package: libx\nArchitecture: amd64\nVersion: 1:2+b3\nDescription: a: b\n Version: 9\n",
		"cloudblock-node", string(program), "etc/passwd", "x")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(got, "pkg:deb/debian/libx@1%3A2%2Bb3?arch=amd64&distro=debian-13") {
		t.Errorf("the package is missing: %q", got)
	}
	if !slices.ContainsFunc(got, func(p string) bool { return strings.HasPrefix(p, "pkg:golang/github.com/CycloneDX/cyclonedx-go@v") }) ||
		!slices.ContainsFunc(got, func(p string) bool { return strings.HasPrefix(p, "pkg:golang/std@1.") }) {
		t.Errorf("the modules are missing: %q", got)
	}
}

func TestImagesThatCannotBeDescribed(t *testing.T) {
	for name, files := range map[string][]string{
		"nothing in it":                   {"etc/passwd", "x"},
		"a package without a version":     {"var/lib/dpkg/status.d/libx", "Package: libx\n"},
		"a program that is not one of Go": {"cloudblock-node", "#!/bin/sh\n"},
	} {
		if got, err := purls(t, files...); err == nil {
			t.Errorf("%s: %q, want an error", name, got)
		}
	}
}
