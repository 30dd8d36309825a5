package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/check"
)

func TestCommandLinesOfCheck(t *testing.T) {
	tests := map[string]struct {
		args []string
		err  error
		says string
	}{
		"no device":                     {nil, driver.ErrCommandLine, "no device or image"},
		"two devices":                   {[]string{"/a", "--json", "/b"}, driver.ErrCommandLine, `"/b"`},
		"an unknown flag":               {[]string{"/a", "--repair"}, driver.ErrCommandLine, "-repair"},
		"a device that is not there":    {[]string{"--replay", "/nonexistent"}, check.ErrUnchecked, "no such file"},
		"flags behind the device":       {[]string{"/nonexistent", "--json"}, check.ErrUnchecked, `"result": "unchecked"`},
		"a help that is asked for late": {[]string{"/nonexistent", "--help"}, nil, "Exit code"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), append([]string{"check"}, tc.args...), nil, &out, &out)
			if !errors.Is(err, tc.err) {
				t.Errorf("check %q = %v, want %v", tc.args, err, tc.err)
			}
			if err != nil {
				out.WriteString(err.Error())
			}
			if !strings.Contains(out.String(), tc.says) {
				t.Errorf("check %q says\n%s\nwant %q in it", tc.args, out.String(), tc.says)
			}
		})
	}
}
