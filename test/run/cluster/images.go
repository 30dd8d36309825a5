package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/cluster/archive"
)

// pauseImage holds a pod's namespaces; containerd is told its name.
const pauseImage = "registry.k8s.io/pause:3.10.2"

// busyboxImage is what examples and tests run as a workload.
const busyboxImage = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"

// kubectlImage is the one that deploy/examples/report.yaml names.
const kubectlImage = "registry.k8s.io/kubectl:v1.36.1"

// snapshotMetadataImage is the one of the component changed-blocks, which a test adds to the manifests.
const snapshotMetadataImage = "registry.k8s.io/sig-storage/csi-snapshot-metadata:v1.1.0"

// toolsImage has the clients of that sidecar. No image of them is published.
const toolsImage = "localhost/metadatatools:1"

// stockImages are the ones that are made here and asked for by the upstream storage suite, beside
// the sidecars' that manifests name.
func stockImages(l layout) ([]archive.Image, error) {
	busybox, err := busyboxFiles()
	if err != nil {
		return nil, err
	}
	return []archive.Image{
		{
			Tags: []string{pauseImage}, Entrypoint: []string{"/pause"},
			Files: []archive.File{{Name: "pause", Source: l.bin("pause")}},
		},
		{
			// Of nginx the suite uses the shell only. The names are those of Kubernetes 1.36 and 1.37.
			Tags: []string{
				busyboxImage, "registry.k8s.io/e2e-test-images/busybox:1.37.0-2",
				"registry.k8s.io/e2e-test-images/nginx:1.15-4", "registry.k8s.io/e2e-test-images/nginx:1.27.0-2",
			},
			Command: []string{"sh"}, Files: busybox,
		},
		{
			Tags:       []string{"registry.k8s.io/e2e-test-images/agnhost:2.63.0", "registry.k8s.io/e2e-test-images/agnhost:2.66.1"},
			Entrypoint: []string{"/agnhost"},
			Command:    []string{"pause"}, Files: append(busybox, archive.File{Name: "agnhost", Source: l.bin("agnhost")}),
		},
		{
			// As build/server-image of Kubernetes makes it, on the image go-runner: without a shell.
			Tags: []string{kubectlImage}, Entrypoint: []string{"/bin/kubectl"},
			Files: []archive.File{{Name: "bin/kubectl", Source: l.bin("kubectl")}, {Name: "go-runner", Source: l.bin("kube-log-runner")}},
		},
		{
			Tags: []string{toolsImage}, Command: []string{"sh"}, Files: append(slices.Clone(busybox),
				archive.File{Name: "snapshot-metadata-verifier", Source: l.bin("metadatatools")},
				archive.File{Name: "snapshot-metadata-lister", Link: "/snapshot-metadata-verifier"}),
		},
	}, nil
}

// busyboxFiles are Debian's static busybox and a link for each of its commands.
func busyboxFiles() ([]archive.File, error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	list, err := output(exec.Command(busybox, "--list-full"))
	if err != nil {
		return nil, err
	}
	files := []archive.File{
		{Name: "bin/busybox", Source: busybox},
		{Name: "tmp", Mode: 0o1777},
		{Name: "root", Mode: 0o700},
	}
	for applet := range strings.FieldsSeq(list) {
		if applet != "bin/busybox" {
			files = append(files, archive.File{Name: applet, Link: "/bin/busybox"})
		}
	}
	return files, nil
}

var imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image: ["']?([^\s"']+)`)

// imagesNamed lists the images that rendered manifests name.
func imagesNamed(manifests string) []string {
	var names []string
	for _, match := range imageLine.FindAllStringSubmatch(manifests, -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sidecars are the programs whose images are made here, by the last word of the images' names, with
// the file that holds the program. The stock image of each has it at this path, too.
var sidecars = map[string]struct{ binary, entrypoint string }{
	"csi-provisioner":           {"csi-provisioner", "/csi-provisioner"},
	"csi-attacher":              {"csi-attacher", "/csi-attacher"},
	"csi-resizer":               {"csi-resizer", "/csi-resizer"},
	"csi-snapshotter":           {"csi-snapshotter", "/csi-snapshotter"},
	"csi-snapshot-metadata":     {"csi-snapshot-metadata", "/csi-snapshot-metadata"},
	"snapshot-controller":       {"snapshot-controller", "/snapshot-controller"},
	"csi-node-driver-registrar": {"registrar", "/csi-node-driver-registrar"},
	"livenessprobe":             {"registrar", "/livenessprobe"},
}

// sidecarImages makes the images of the sidecars under the very names that the manifests use. Other
// names are the driver's own, or else a mistake, which lacks tells after the import.
func sidecarImages(l layout, names []string) []archive.Image {
	var images []archive.Image
	for _, name := range names {
		tagged, _, _ := strings.Cut(path.Base(name), ":")
		program, known := sidecars[tagged]
		if !known {
			continue
		}
		images = append(images, archive.Image{
			Tags: []string{name}, Entrypoint: []string{program.entrypoint},
			Files: []archive.File{{Name: strings.TrimPrefix(program.entrypoint, "/"), Source: l.bin(program.binary)}},
		})
	}
	return images
}

// saveImages writes the archive that every node imports.
func saveImages(path string, images []archive.Image) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return archive.Write(out, images)
}

// importArchive gives a node the images of an archive.
func (n *node) importArchive(ctx context.Context, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := n.ctr(ctx, "images", "import", "-")
	cmd.Stdin = file
	return runCommand(cmd)
}

// lacks names the images that a node does not have.
func (n *node) lacks(ctx context.Context, names []string) error {
	list, err := output(n.ctr(ctx, "images", "list", "--quiet"))
	if err != nil {
		return err
	}
	there := strings.Fields(list)
	var missing []string
	for _, name := range names {
		if !slices.Contains(there, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s: no archive holds these images that manifests name: %s", n.Name, strings.Join(missing, ", "))
	}
	return nil
}

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
	for _, file := range archives {
		stamp, err := stampOf(file)
		if err != nil {
			return err
		}
		if err := c.importArchive(ctx, file, stamp); err != nil {
			return err
		}
	}
	return c.onEach(func(n *node) error { return n.lacks(ctx, named) })
}

// importMade writes the images that are made here into one archive and imports it.
func (c *cluster) importMade(ctx context.Context, images []archive.Image) error {
	stamp, err := stampOfImages(images)
	if err != nil {
		return err
	}
	file := c.run("images.tar")
	if c.state.Imported[file] == stamp {
		return nil
	}
	if err := saveImages(file, images); err != nil {
		return err
	}
	// Afterwards every node has its own copy.
	return errors.Join(c.importArchive(ctx, file, stamp), os.Remove(file))
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
func stampOfImages(images []archive.Image) (string, error) {
	var all strings.Builder
	for _, img := range images {
		fmt.Fprintln(&all, img.Tags, img.Entrypoint, img.Command, len(img.Files))
		for _, f := range img.Files {
			if f.Source == "" {
				continue
			}
			stamp, err := stampOf(f.Source)
			if err != nil {
				return "", err
			}
			fmt.Fprintln(&all, f.Name, stamp)
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
