package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// Every module that the programs link has a licence that is accepted, and its text is printed.
func TestThePrograms(t *testing.T) {
	for program, wants := range map[string][]string{
		"../../cmd/controller": {"google.golang.org/grpc", "Mozilla Public License", "Go go1.", "LICENSE.libyaml"},
		"../../cmd/node":       {"k8s.io/mount-utils", "Copyright 2009 The Go Authors"},
	} {
		var text strings.Builder
		expect.NoError(t, run(t.Context(), &text, false, program))
		for _, want := range wants {
			if !strings.Contains(text.String(), want) {
				t.Errorf("the terms of %s do not have %q", program, want)
			}
		}
	}
}

func TestWhatIsNotAcceptedIsRefused(t *testing.T) {
	const mit = "Permission is hereby granted, free\nof charge, to any person"
	for name, tc := range map[string]struct {
		files map[string]string
		says  string
	}{
		"one that is accepted":          {map[string]string{"LICENSE": mit}, ""},
		"in a subfolder, with a NOTICE": {map[string]string{"sub/License.txt": mit, "NOTICE": "thanks"}, ""},
		"none":                          {map[string]string{"README": mit, "NOTICE": mit}, "there is no licence"},
		"another":                       {map[string]string{"COPYING": "GNU GENERAL PUBLIC LICENSE Version 3"}, "COPYING is no licence"},
		"another of a part":             {map[string]string{"LICENSE": mit, "sub/LICENCE": "all rights reserved"}, "sub/LICENCE is no licence"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &module{name: "example.org/m v1", dir: t.TempDir(), texts: map[string]string{}, licences: map[string]bool{}}
			sub := filepath.Join(m.dir, "sub")
			expect.NoError(t, os.Mkdir(sub, 0o700))
			for file, text := range tc.files {
				expect.NoError(t, os.WriteFile(filepath.Join(m.dir, file), []byte(text), 0o600))
			}
			expect.NoError(t, m.read(sub))
			err := m.check()
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the check = %v, want %q", err, tc.says)
			}
		})
	}
}

// TestEachImageHasTheTerms: each Dockerfile puts the project's licence and the terms of all programs that it builds into its image.
func TestEachImageHasTheTerms(t *testing.T) {
	files, err := filepath.Glob("../*.Dockerfile")
	if err != nil || len(files) < 3 {
		t.Fatalf("the Dockerfiles are %v, %v", files, err)
	}
	for _, file := range files {
		var text [2]string
		for i, path := range []string{file, file + ".dockerignore"} {
			content, err := os.ReadFile(path)
			expect.NoError(t, err)
			text[i] = string(content)
		}
		_, notices, _ := strings.Cut(text[0], "go run ./build/notices ")
		notices, _, _ = strings.Cut(notices, ">")
		for _, program := range []string{"controller", "node"} {
			built := strings.Contains(text[0], "/out/cloudblock-"+program+" ")
			if named := strings.Contains(notices, "./cmd/"+program+" "); named != built {
				t.Errorf("%s: it has %s: %t, and its terms: %t", file, program, built, named)
			}
		}
		for _, want := range []string{"\nCOPY LICENSE /licenses/cloudblock-csi\n", "\nCOPY --from=build /out/third-party /licenses/third-party\n"} {
			if !strings.Contains(text[0], want) {
				t.Errorf("%s has no %s", file, strings.TrimSpace(want))
			}
		}
		for _, want := range []string{"!LICENSE", "!build/notices"} {
			if !strings.Contains(text[1], "\n"+want+"\n") {
				t.Errorf("%s.dockerignore has no %s", file, want)
			}
		}
	}
}
