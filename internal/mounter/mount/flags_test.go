package mount

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

func TestMountOptions(t *testing.T) {
	tests := map[string]struct {
		fs       mounter.Filesystem
		options  []string
		rest     []string
		readOnly bool
	}{
		"none":                           {mounter.Ext4, nil, nil, false},
		"several in one flag":            {mounter.Ext4, []string{"noatime,nodev", "discard"}, []string{"noatime", "nodev", "discard"}, false},
		"ro is taken out":                {mounter.XFS, []string{"defaults,ro"}, nil, true},
		"rw says nothing":                {mounter.XFS, []string{"rw"}, nil, false},
		"empty options":                  {mounter.Ext4, []string{",noatime,,", "nodev"}, []string{"noatime", "nodev"}, false},
		"quoted commas hold together":    {mounter.Ext4, []string{`context="a:b,c",noatime`}, []string{`context="a:b,c"`, "noatime"}, false},
		"a quote that the next closes":   {mounter.Ext4, []string{`context="a:b`, `c"`, "noatime"}, []string{`context="a:b,c"`, "noatime"}, false},
		"a label without quotes":         {mounter.XFS, []string{"fscontext=a:b:c:s0"}, []string{"fscontext=a:b:c:s0"}, false},
		"values of a filesystem":         {mounter.Ext4, []string{"data=ordered", "commit=30"}, []string{"data=ordered", "commit=30"}, false},
		"ext4's policy":                  {mounter.Ext4, []string{"errors=continue"}, []string{"errors=continue"}, false},
		"the filesystem without a name":  {"", []string{"nobarrier"}, []string{"nobarrier"}, false},
		"an option that starts like one": {mounter.XFS, []string{"swalloc"}, []string{"swalloc"}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			rest, readOnly, err := ParseMountOptions(tc.fs, tc.options)
			if err != nil || !slices.Equal(rest, tc.rest) || readOnly != tc.readOnly {
				t.Errorf("ParseMountOptions(%s, %q) = %q, %v, %v, want %q, %v", tc.fs, tc.options, rest, readOnly, err, tc.rest, tc.readOnly)
			}
		})
	}
}

// TestRefusedMountOptions: what would be another mount than the volume's own is refused, and no value is repeated.
func TestRefusedMountOptions(t *testing.T) {
	tests := map[string]struct {
		fs      mounter.Filesystem
		options []string
	}{
		"a quote across two flags hides a loop device":  {mounter.Ext4, []string{`x-a="1`, `2",loop`}},
		"a quote across two flags hides a subfolder":    {mounter.Ext4, []string{`x-a="1`, `2",X-mount.subdir=lost+found`}},
		"a quote that a label opens hides a bind":       {mounter.Ext4, []string{`context="a`, `b",bind,context="c"`}},
		"a quote that is not closed":                    {mounter.Ext4, []string{`context="secret,noatime`}},
		"a quote inside a label":                        {mounter.Ext4, []string{`context=secret"a,b"`}},
		"two pairs of quotes":                           {mounter.Ext4, []string{`context="secret""b"`}},
		"a quote outside a label":                       {mounter.Ext4, []string{`commit="secret"`}},
		"a quoted name":                                 {mounter.Ext4, []string{`"secret"`}},
		"a backslash, which keeps mount from splitting": {mounter.Ext4, []string{`noatime\,bind`}},
		"a backslash in a label":                        {mounter.Ext4, []string{`context=secret\,bind`}},
		"a label with nothing in it":                    {mounter.Ext4, []string{"context="}},
		"a label with a space":                          {mounter.Ext4, []string{`context="secret b"`}},
		"a bind":                                        {mounter.Ext4, []string{"noatime,bind"}},
		"a remount":                                     {mounter.XFS, []string{"remount"}},
		"a loop device":                                 {mounter.XFS, []string{"loop=/dev/secret"}},
		"a journal on another device":                   {mounter.Ext4, []string{"journal_path=/dev/secret"}},
		"a log on another device":                       {mounter.XFS, []string{"logdev=/dev/secret"}},
		"a part of the device":                          {mounter.Ext4, []string{"offset=4096"}},
		"a superblock elsewhere":                        {mounter.Ext4, []string{"sb=32768"}},
		"a journal that is not replayed":                {mounter.Ext4, []string{"noload"}},
		"a log that is not replayed":                    {mounter.XFS, []string{"ro,norecovery"}},
		"propagation":                                   {mounter.Ext4, []string{"rshared"}},
		"a folder that mount makes":                     {mounter.Ext4, []string{"X-mount.mkdir"}},
		"verity":                                        {mounter.Ext4, []string{"verity.hashdevice=/dev/secret"}},
		"a helper":                                      {mounter.Ext4, []string{"helper=secret"}},
		"the user who may unmount":                      {mounter.Ext4, []string{"user=secret"}},
		"a machine that stops":                          {mounter.Ext4, []string{"errors=panic"}},
		"a policy without a value":                      {mounter.Ext4, []string{"errors"}},
		"a flag with a value, which is recursive":       {mounter.Ext4, []string{"ro=recursive"}},
		"a value with a path":                           {mounter.Ext4, []string{"commit=/secret"}},
		"a value with an equals sign":                   {mounter.Ext4, []string{"commit=5=secret"}},
		"an option of another filesystem":               {mounter.XFS, []string{"data=ordered"}},
		"an unknown option with a value":                {mounter.Ext4, []string{"password=secret"}},
		"a name with a space":                           {mounter.Ext4, []string{"noatime ,nodev"}},
		"a zero byte":                                   {mounter.Ext4, []string{"secret\x00"}},
		"a name that no option has":                     {mounter.Ext4, []string{"sécret"}},
		"no name":                                       {mounter.Ext4, []string{"=secret"}},
		"an unknown filesystem":                         {"ntfs", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			rest, _, err := ParseMountOptions(tc.fs, tc.options)
			if !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("ParseMountOptions(%s, %q) = %q, %v, want %v", tc.fs, tc.options, rest, err, fault.InvalidArgument)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("ParseMountOptions(%s, %q) repeats a value: %v", tc.fs, tc.options, err)
			}
		})
	}
}

// TestAllowedMountOptionsAreDocumented: the chapter that a refusal refers to lists each option.
func TestAllowedMountOptionsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations.md")
	must(t, err)
	_, chapter, _ := strings.Cut(string(text), "\n## Mount options\n")
	rows := map[string][]string{"all": flagOptions, "all, with an SELinux label": labelOptions}
	for fs, options := range filesystemOptions {
		rows[string(fs)] = options
	}
	for name, options := range rows {
		if want := "\n| " + name + " | `" + strings.Join(options, "` `") + "` |\n"; !strings.Contains(chapter, want) {
			t.Errorf("docs/operations.md lacks the row%s", want)
		}
	}
}

// FuzzMountOptions: however the flags are cut, mount(8)'s own reading of what passes holds no option that is not allowed.
func FuzzMountOptions(f *testing.F) {
	f.Add(`x-a="1`, `2",loop`, "noatime")
	f.Add(`context="a:b,c"`, "commit=5", `noatime\,bind`)
	f.Add(`context="a`, `b",bind,context="c"`, "compress=zstd")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for fs, own := range filesystemOptions {
			rest, _, err := ParseMountOptions(fs, []string{a, b, c})
			if err != nil {
				continue
			}
			for _, name := range namesAsLibmount(strings.Join(withPolicy(fs, rest), ",")) {
				if !slices.Contains(own, name) && !slices.Contains(flagOptions, name) && !slices.Contains(labelOptions, name) {
					t.Errorf("ParseMountOptions(%s, %q, %q, %q) lets %q through", fs, a, b, c, name)
				}
			}
		}
	})
}

// namesAsLibmount splits as ul_optstr_next of util-linux does (lib/strutils.c): quotes keep a comma, and since 2.38 so
// does a backslash. An option that older versions see is returned too.
func namesAsLibmount(text string) []string {
	var names []string
	for _, backslash := range []bool{false, true} {
		quoted, start, sep := false, 0, -1
		for i := 0; i <= len(text); i++ {
			switch {
			case i < len(text) && text[i] == '"':
				quoted = !quoted
			case i < len(text) && (quoted || text[i] != ',' && text[i] != '='):
			case i < len(text) && text[i] == '=':
				if sep < 0 {
					sep = i
				}
			case i < len(text) && backslash && i > start && text[i-1] == '\\':
			default:
				end := i
				if sep >= 0 {
					end = sep
				}
				if i > start {
					names = append(names, text[start:end])
				}
				start, sep = i+1, -1
			}
		}
	}
	return names
}
