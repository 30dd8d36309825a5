// Package archive writes images of containers from files of this machine, without a builder or a registry.
package archive

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"time"
)

// Image is what a container is made of, under the names that manifests use for it.
type Image struct {
	Tags       []string // whole names; at least one
	Entrypoint []string
	Command    []string
	Files      []File // their folders are made where they are not listed
}

// File is one entry of an image: a copy of the file Source, a symbolic link to Link, or else a folder.
type File struct {
	Name   string
	Source string
	Link   string
	Mode   int64 // 0755 if zero
}

type imageConfig struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		Env        []string
		Entrypoint []string `json:",omitempty"`
		Cmd        []string `json:",omitempty"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

type imageManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// Write writes images as one archive in Docker's format, each with one layer. The same files make the same images.
func Write(out io.Writer, images []Image) error {
	archive := tar.NewWriter(out)
	var manifest []imageManifest
	for _, img := range images {
		entry, err := img.write(archive)
		if err != nil {
			return fmt.Errorf("image %s: %w", img.Tags[0], err)
		}
		manifest = append(manifest, entry)
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	if err := addBytes(archive, "manifest.json", text); err != nil {
		return err
	}
	return archive.Close()
}

func (i Image) write(archive *tar.Writer) (imageManifest, error) {
	// The layer is made twice: its size and digest stand before it in the archive.
	digest := sha256.New()
	size := &counter{}
	if err := i.writeLayer(io.MultiWriter(digest, size)); err != nil {
		return imageManifest{}, err
	}
	id := hex.EncodeToString(digest.Sum(nil))
	layer := id + "/layer.tar"
	if err := archive.WriteHeader(&tar.Header{Name: layer, Mode: 0o644, Size: size.bytes}); err != nil {
		return imageManifest{}, err
	}
	if err := i.writeLayer(archive); err != nil {
		return imageManifest{}, err
	}
	config := imageConfig{Architecture: runtime.GOARCH, OS: "linux"}
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	config.Config.Entrypoint, config.Config.Cmd = i.Entrypoint, i.Command
	config.RootFS.Type, config.RootFS.DiffIDs = "layers", []string{"sha256:" + id}
	text, err := json.Marshal(config)
	if err != nil {
		return imageManifest{}, err
	}
	sum := sha256.Sum256(text)
	name := hex.EncodeToString(sum[:]) + ".json"
	return imageManifest{Config: name, RepoTags: i.Tags, Layers: []string{layer}}, addBytes(archive, name, text)
}

func (i Image) writeLayer(out io.Writer) error {
	layer := tar.NewWriter(out)
	made := map[string]bool{".": true}
	for _, f := range i.Files {
		if err := addFolders(layer, made, path.Dir(f.Name)); err != nil {
			return err
		}
		if err := f.write(layer); err != nil {
			return err
		}
		made[f.Name] = true
	}
	return layer.Close()
}

// addFolders adds a folder and those above it, unless they are there.
func addFolders(layer *tar.Writer, made map[string]bool, folder string) error {
	if made[folder] {
		return nil
	}
	if err := addFolders(layer, made, path.Dir(folder)); err != nil {
		return err
	}
	made[folder] = true
	return File{Name: folder}.write(layer)
}

func (f File) write(layer *tar.Writer) error {
	mode := f.Mode
	if mode == 0 {
		mode = 0o755
	}
	// One time for all: the same files make the same image, which a node then has already.
	header := &tar.Header{Name: f.Name, Mode: mode, ModTime: time.Unix(0, 0), Typeflag: tar.TypeDir}
	switch {
	case f.Link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, f.Link
		return layer.WriteHeader(header)
	case f.Source == "":
		header.Name += "/"
		return layer.WriteHeader(header)
	}
	source, err := os.Open(f.Source)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := layer.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(layer, source)
	return err
}

func addBytes(archive *tar.Writer, name string, text []byte) error {
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
		return err
	}
	_, err := archive.Write(text)
	return err
}

type counter struct{ bytes int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), nil
}
