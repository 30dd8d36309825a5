// Command sbom prints what an image of the driver is made of, as a CycloneDX document: the modules of its Go
// programs, from the programs' own build information, and its Debian packages, from /var/lib/dpkg/status.d.
//
//	sbom image.tar >image.cdx.json
package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom IMAGE.tar")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(archive string, out io.Writer) error {
	bom, err := describe(archive)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	encoder := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	return encoder.Encode(bom)
}

// describe reads an archive as `docker save` writes it.
func describe(archive string) (*cyclonedx.BOM, error) {
	var manifest []struct{ RepoTags, Layers []string }
	err := files(archive, func(name string, content []byte) error {
		if name != "manifest.json" {
			return nil
		}
		return json.Unmarshal(content, &manifest)
	})
	if err != nil {
		return nil, err
	}
	if len(manifest) != 1 || len(manifest[0].RepoTags) != 1 {
		return nil, errors.New("want an archive of one image with one name")
	}
	var parts []cyclonedx.Component
	var distro string
	err = files(archive, func(name string, content []byte) error {
		if !slices.Contains(manifest[0].Layers, name) {
			return nil
		}
		return each(bytes.NewReader(content), func(name string, content []byte) error {
			if name == "usr/lib/os-release" {
				distro = "debian-" + fieldsOf(content, "=")["VERSION_ID"]
			}
			found, err := components(name, content)
			parts = append(parts, found...)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, errors.New("holds neither a Go program nor a package")
	}
	for i := range parts {
		if strings.HasPrefix(parts[i].PackageURL, "pkg:deb/") {
			parts[i].PackageURL += "&distro=" + distro
		}
	}
	slices.SortFunc(parts, func(a, b cyclonedx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	parts = slices.CompactFunc(parts, func(a, b cyclonedx.Component) bool { return a.BOMRef == b.BOMRef })
	image := manifest[0].RepoTags[0]
	name, tag := image[:strings.LastIndex(image, ":")], image[strings.LastIndex(image, ":")+1:]
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		Type: cyclonedx.ComponentTypeContainer, BOMRef: image, Name: name, Version: tag,
	}}
	bom.Components = &parts
	return bom, nil
}

// components are what a file of the image says that it is made of; other files say nothing.
func components(name string, content []byte) ([]cyclonedx.Component, error) {
	switch {
	case path.Dir(name) == "var/lib/dpkg/status.d":
		c, err := debianPackage(content)
		return []cyclonedx.Component{c}, err
	case path.Base(name) == "cloudblock-controller", path.Base(name) == "cloudblock-node":
		info, err := buildinfo.Read(bytes.NewReader(content))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return modules(info), nil
	}
	return nil, nil
}

func modules(info *debug.BuildInfo) []cyclonedx.Component {
	found := []cyclonedx.Component{module("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		found = append(found, module(m.Path, m.Version))
	}
	return found
}

func module(name, version string) cyclonedx.Component {
	url := "pkg:golang/" + name + "@" + version
	return cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: url, Name: name, Version: version, PackageURL: url}
}

func debianPackage(entry []byte) (cyclonedx.Component, error) {
	fields := fieldsOf(entry, ": ")
	name, version := fields["Package"], fields["Version"]
	if name == "" || version == "" {
		return cyclonedx.Component{}, fmt.Errorf("a package's entry without its name or version: %q", entry)
	}
	url := fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", name, strings.NewReplacer("+", "%2B", ":", "%3A").Replace(version), fields["Architecture"])
	return cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: url, Name: name, Version: version, PackageURL: url}, nil
}

// fieldsOf reads lines of a key, a separator and a value, which may be quoted.
func fieldsOf(text []byte, separator string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, is := strings.Cut(strings.TrimSpace(line), separator); is && !strings.HasPrefix(line, " ") {
			fields[key] = strings.Trim(value, `"`)
		}
	}
	return fields
}

// files calls do for each file of an archive on disk.
func files(archive string, do func(name string, content []byte) error) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	return each(f, do)
}

// each calls do for each regular file of a tar archive.
func each(r io.Reader, do func(name string, content []byte) error) error {
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(archive)
		if err == nil {
			err = do(filepath.ToSlash(filepath.Clean(h.Name)), content)
		}
		if err != nil {
			return err
		}
	}
}
