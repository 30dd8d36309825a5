package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/check"
)

func TestCommandLinesOfCheck(t *testing.T) {
	now := fmt.Sprintf("--snapshot-time=%d", time.Now().UnixNano())
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
		"a snapshot that is too old":    {[]string{"/nonexistent", "--snapshot-time=1767322845000000000", "--max-age=48h"}, check.ErrUnchecked, "are snapshots still taken"},
		"one that is young enough":      {[]string{"/nonexistent", now, "--max-age=48h"}, check.ErrUnchecked, "no such file"},
		"an age without a time":         {[]string{"/nonexistent", "--max-age=48h"}, driver.ErrCommandLine, "only together"},
		"an age below 0":                {[]string{"/nonexistent", now, "--max-age=-48h"}, driver.ErrCommandLine, "below 0"},
		"a time without an age":         {[]string{"/nonexistent", now}, driver.ErrCommandLine, "only together"},
		"a time that is none":           {[]string{"/nonexistent", "--snapshot-time=<no value>", "--max-age=48h"}, driver.ErrCommandLine, "snapshot-time"},
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
