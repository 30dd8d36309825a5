package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/doctor"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// examinedIn returns the checks of a program with these flags.
func examinedIn(t *testing.T, flags []string) []doctor.Check {
	t.Helper()
	cfg, err := parse(flags, noEnvironment, nil)
	ok(t, err)
	e := &examined{config: &cfg, log: zap.NewNop()}
	t.Cleanup(func() {
		if e.end != nil {
			_ = e.end(t.Context())
		}
	})
	return e.checks()
}

func TestDoctorReportsEveryCheck(t *testing.T) {
	for _, cloud := range append(accounts.Names(), "local") {
		flags := []string{"--cloud=local", "--node-id=n", "--local-pool=" + t.TempDir(), "--endpoint=" + drivertest.Endpoint(t)}
		if cloud != "local" {
			flags = slices.Concat(newInCloud(t, cloud).flags, []string{"--cluster-id=prod", "--endpoint=" + drivertest.Endpoint(t)})
		}
		checks := examinedIn(t, flags)
		report := doctor.Examine(t.Context(), checks)
		for _, c := range checks {
			if !slices.ContainsFunc(report, func(f doctor.Finding) bool { return f.Check == c.Name }) {
				t.Errorf("--cloud=%s: doctor says nothing of the check %q: %+v", cloud, c.Name, report)
			}
		}
	}
}

// TestTheStartSaysWhatDoctorSays: both report the same fault with the same sentence, including the remedy.
func TestTheStartSaysWhatDoctorSays(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "token")
	ok(t, os.WriteFile(empty, nil, 0o600))
	account := newInCloud(t, "linode")
	for check, fault := range map[string][]string{
		"socket":      {"--endpoint=unix://" + t.TempDir() + "/none/c.sock"},
		"credentials": {"--credentials-file=" + empty},
		"metadata":    {"--region=", "--metadata-endpoint=http://127.0.0.1:1"},
	} {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			flags := slices.Concat(account.flags, []string{"--cluster-id=prod", "--endpoint=" + drivertest.Endpoint(t)}, fault)
			report := doctor.Examine(ctx, examinedIn(t, flags))
			at := slices.IndexFunc(report, func(f doctor.Finding) bool { return f.Check == check && f.State != doctor.OK })
			if at < 0 {
				t.Fatalf("doctor finds %+v", report)
			}
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := run(ctx, flags, noEnvironment, &bytes.Buffer{}, &bytes.Buffer{})
			if want := report[at].Message + "; " + report[at].Remedy; err == nil || err.Error() != want {
				t.Errorf("run = %v, want %s", err, want)
			}
		})
	}
}
