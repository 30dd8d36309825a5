package check

import (
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"
)

const someHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestParseSum(t *testing.T) {
	tests := map[string]struct{ line, want, refused string }{
		"a name":                             {someHash + "  file", "file", ""},
		"a name read as binary":              {someHash + " *file", "file", ""},
		"a path below a directory":           {someHash + "  ./a/b c", "./a/b c", ""},
		"a name with a line feed":            {`\` + someHash + `  a\nb\\c`, "a\nb\\c", ""},
		"a backslash without an escape":      {someHash + `  a\nb`, `a\nb`, ""},
		"upper case":                         {strings.ToUpper(someHash) + "  file", "file", ""},
		"an absolute path":                   {someHash + "  /etc/shadow", "", "leaves the volume"},
		"a path above the volume":            {someHash + "  a/../../b", "", "leaves the volume"},
		"an escape of the path":              {`\` + someHash + `  ..\\..`, `..\..`, ""},
		"a checksum of another length":       {someHash[:40] + "  file", "", "not of the form"},
		"a checksum that is not one":         {strings.Repeat("g", 64) + "  file", "", "no checksum"},
		"no name":                            {someHash + "  ", "", "not of the form"},
		"a form of BSD":                      {"SHA256 (file) = " + someHash, "", "not of the form"},
		"a name with a byte that ends texts": {someHash + "  a\x00b", "", "a byte 0"},
		"nothing":                            {"", "", "not of the form"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseSum(tc.line)
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("parseSum(%q) = %v, want an error with %q", tc.line, err, tc.refused)
				}
				return
			}
			if err != nil || got.name != tc.want || hex.EncodeToString(got.hash[:]) != someHash {
				t.Errorf("parseSum(%q) = %+v, %v, want the name %q", tc.line, got, err, tc.want)
			}
		})
	}
}

// Whatever a list holds, no name leaves the volume, and what sha256sum would write for the result is read as the same again.
func FuzzParseSum(f *testing.F) {
	for _, seed := range []string{someHash + "  file", `\` + someHash + ` *a\nb\\`, someHash + "  ../x", "", `\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got, err := parseSum(line)
		if err != nil {
			return
		}
		if !filepath.IsLocal(got.name) {
			t.Errorf("parseSum(%q) accepts the name %q", line, got.name)
		}
		written := `\` + hex.EncodeToString(got.hash[:]) + "  " + strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(got.name)
		if again, err := parseSum(written); err != nil || again != got {
			t.Errorf("parseSum(%q) = %+v, %v, want %+v", written, again, err, got)
		}
	})
}
