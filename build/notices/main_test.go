package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every module that the programs link has a licence that is accepted, and its text is printed.
func TestThePrograms(t *testing.T) {
	for program, wants := range map[string][]string{
		"../../cmd/controller": {"google.golang.org/grpc", "Mozilla Public License", "Go go1.", "github.com/golang/gddo"},
		"../../cmd/node":       {"k8s.io/mount-utils", "Copyright 2009 The Go Authors"},
	} {
		var text strings.Builder
		if err := run(t.Context(), &text, false, program); err != nil {
			t.Fatal(err)
		}
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
			if err := os.Mkdir(sub, 0o700); err != nil {
				t.Fatal(err)
			}
			for file, text := range tc.files {
				if err := os.WriteFile(filepath.Join(m.dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.read(sub); err != nil {
				t.Fatal(err)
			}
			err := m.check()
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the check = %v, want %q", err, tc.says)
			}
		})
	}
}
