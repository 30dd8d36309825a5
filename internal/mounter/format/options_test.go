package format

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

func TestMkfsOptions(t *testing.T) {
	tests := map[string]struct {
		fs      mounter.Filesystem
		options []string
		ok      bool
	}{
		"none":                              {mounter.Ext4, nil, true},
		"a value apart":                     {mounter.Ext4, []string{"-b", "4096"}, true},
		"a value attached":                  {mounter.Ext4, []string{"-b4096"}, true},
		"features":                          {mounter.Ext4, []string{"-O", "^has_journal,quota"}, true},
		"extended ones":                     {mounter.Ext4, []string{"-E", "stride=4,stripe_width=8"}, true},
		"an internal journal's size":        {mounter.Ext4, []string{"-J", "size=64"}, true},
		"an external journal":               {mounter.Ext4, []string{"-J", "device=/dev/sda"}, false},
		"an external journal behind a size": {mounter.Ext4, []string{"-J", "size=64,device=/dev/sda"}, false},
		"an external journal attached":      {mounter.Ext4, []string{"-Jdevice=/dev/sda"}, false},
		"an offset":                         {mounter.Ext4, []string{"-E", "offset=4096"}, false},
		"discard":                           {mounter.Ext4, []string{"-E", "discard"}, false},
		"a promise of zeros":                {mounter.Ext4, []string{"-E", "assume_storage_prezeroed=1"}, false},
		"a dry run":                         {mounter.Ext4, []string{"-n"}, false},
		"superblocks only":                  {mounter.Ext4, []string{"-S"}, false},
		"a folder of the node":              {mounter.Ext4, []string{"-d", "/etc"}, false},
		"a list of bad blocks from a file":  {mounter.Ext4, []string{"-l", "/etc/shadow"}, false},
		"one UUID for all":                  {mounter.Ext4, []string{"-U", "clear"}, false},
		"a device":                          {mounter.Ext4, []string{"/dev/sda"}, false},
		"a size":                            {mounter.Ext4, []string{"-m", "0", "100"}, false},
		"the end of options":                {mounter.Ext4, []string{"--", "/dev/sda"}, false},
		"a missing value, which would eat the device": {mounter.Ext4, []string{"-b"}, false},
		"an empty word":               {mounter.Ext4, []string{""}, false},
		"an empty value":              {mounter.Ext4, []string{"-L", ""}, false},
		"flags in one word":           {mounter.Ext4, []string{"-qS"}, false},
		"a zero byte":                 {mounter.Ext4, []string{"-L", "a\x00b"}, false},
		"xfs: block size and reflink": {mounter.XFS, []string{"-b", "size=4096", "-m", "reflink=0,bigtime=1"}, true},
		"xfs: log size":               {mounter.XFS, []string{"-l", "size=64m"}, true},
		"xfs: log on another device":  {mounter.XFS, []string{"-l", "logdev=/dev/sda"}, false},
		"xfs: data in a file":         {mounter.XFS, []string{"-d", "file,name=/etc/x"}, false},
		"xfs: a realtime device":      {mounter.XFS, []string{"-r", "rtdev=/dev/sda"}, false},
		"xfs: a prototype file":       {mounter.XFS, []string{"-p", "/etc/x"}, false},
		"xfs: a configuration file":   {mounter.XFS, []string{"-c", "options=/etc/x"}, false},
		"xfs: one UUID for all":       {mounter.XFS, []string{"-m", "uuid=1"}, false},
		"an unknown filesystem":       {"ntfs", nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := ValidateMkfsOptions(tc.fs, tc.options)
			if (err == nil) != tc.ok || !tc.ok && !errors.Is(err, fault.InvalidArgument) {
				t.Errorf("ValidateMkfsOptions(%s, %q) = %v, want accepted: %v", tc.fs, tc.options, err, tc.ok)
			}
		})
	}
}

func FuzzMkfsOptions(f *testing.F) {
	f.Add("-E", "stride=4", "-b4096")
	f.Add("--label=x", "-f", "--")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for fs, known := range mkfsOptions {
			parsed, err := parseMkfsOptions(fs, []string{a, b, c})
			if err != nil {
				continue
			}
			words := 0
			for _, o := range parsed {
				if _, ok := known[o.name]; !ok {
					t.Errorf("%s: %q, %q, %q: option %q was let through", fs, a, b, c, o.name)
				}
				words++
				if known[o.name].takes && !slices.ContainsFunc([]string{a, b, c}, func(w string) bool { return w == o.name+o.value || w == o.name+"="+o.value }) {
					words++
				}
			}
			if words < 3 {
				t.Errorf("%s: %q, %q, %q gave %+v: a word was lost", fs, a, b, c, parsed)
			}
		}
	})
}

func TestMkfsCommand(t *testing.T) {
	tests := map[string]struct {
		req  Request
		want []string
	}{
		"ext4 leaves no blocks to root, discards nothing and stops at errors": {
			Request{Filesystem: mounter.Ext4}, []string{"-F", "-m", "0", "-e", "remount-ro", "-E", "nodiscard", host.ChildFile}},
		"ext4 on what was never written writes no zeros": {
			Request{Filesystem: mounter.Ext4, History: NeverWritten},
			[]string{"-F", "-m", "0", "-e", "remount-ro", "-E", "nodiscard,assume_storage_prezeroed=1", host.ChildFile}},
		"after a killed mkfs nothing is taken for zero": {
			Request{Filesystem: mounter.Ext4, History: Written}, []string{"-F", "-m", "0", "-e", "remount-ro", "-E", "nodiscard", host.ChildFile}},
		"all -E become one and the class's other options follow": {
			Request{Filesystem: mounter.Ext4, MkfsOptions: []string{"-E", "stride=4", "-m", "5", "-q", "-Estripe_width=8", "-e", "panic"}},
			[]string{"-F", "-m", "0", "-e", "remount-ro", "-E", "nodiscard,stride=4,stripe_width=8", "-m", "5", "-q", "-e", "panic", host.ChildFile}},
		"xfs has nothing that a kernel of 5.10 cannot mount": {
			Request{Filesystem: mounter.XFS, MkfsOptions: []string{"-m", "reflink=0"}},
			[]string{"-f", "-K", "-i", "nrext64=0", "-m", "reflink=0", host.ChildFile}},
		"xfs with what the class asks for": {
			Request{Filesystem: mounter.XFS, MkfsOptions: []string{"-isize=1024,nrext64=1"}},
			[]string{"-f", "-K", "-isize=1024,nrext64=1", host.ChildFile}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := mkfsCommand(tc.req)
			if !reflect.DeepEqual(got.Args, tc.want) || got.Name != "mkfs."+string(tc.req.Filesystem) {
				t.Errorf("mkfsCommand = %+v, want %q", got, tc.want)
			}
		})
	}
}
