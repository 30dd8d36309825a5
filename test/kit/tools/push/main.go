// Command push puts the archives of an image, one for each architecture, into a registry as one image of several architectures. It
// pushes by digest and sets no tag, reads each part back by its digest, and prints the digest of the whole.
//
//	push REPOSITORY IMAGE.tar...
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: push REPOSITORY IMAGE.tar...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(repository string, archives []string, out io.Writer) error {
	repo, err := name.NewRepository(repository)
	if err != nil {
		return err
	}
	index, err := indexOf(archives)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	ref := repo.Digest(digest.String())
	keychain := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if err := remote.WriteIndex(ref, index, keychain); err != nil {
		return fmt.Errorf("push %s: %w", ref, err)
	}
	pushed, err := remote.Index(ref, keychain)
	if err == nil {
		// It compares every digest with what the registry returns for it.
		err = validate.Index(pushed)
	}
	if err != nil {
		return fmt.Errorf("read %s back: %w", ref, err)
	}
	_, err = fmt.Fprintln(out, digest)
	return err
}

// indexOf returns the list of the images in the archives, each with its platform. Its digest depends on the archives and their order.
func indexOf(archives []string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.DockerManifestList)
	has := map[string]string{}
	for _, archive := range archives {
		image, err := tarball.ImageFromPath(archive, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
		platform := v1.Platform{OS: config.OS, Architecture: config.Architecture}
		if platform.OS == "" || platform.Architecture == "" {
			return nil, fmt.Errorf("%s: %w", archive, errors.New("the image names no platform"))
		}
		if other, is := has[platform.String()]; is {
			return nil, fmt.Errorf("%s and %s are both for %s", other, archive, platform)
		}
		has[platform.String()] = archive
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	return index, nil
}
