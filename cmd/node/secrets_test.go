package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// A secret in each call (failure P3 of the catalogue), about volumes that do not exist: with the most verbose log, the errors, the
// log, the metrics, the command line and the environment of the real program do not have it, and neither has any file. test/run/e2e
// does the same with existing volumes, and checks the programs that are run for them.
func TestTheNodeProgramShowsNoSecretOfACall(t *testing.T) {
	const canary = "canary-of-calls-e7"
	dir, address, log := t.TempDir(), drivertest.FreeAddress(t), &drivertest.Log{}
	binary, kubelet := filepath.Join(dir, "cloudblock-node"), filepath.Join(dir, "kubelet")
	pool := newPool(t)
	compile := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.mountTable="+mountTable, "-o", binary, ".")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	must(t, os.Mkdir(kubelet, 0o700))
	endpoint := drivertest.Endpoint(t)
	cmd := exec.CommandContext(t.Context(), binary, "--cloud=local", "--local-pool="+pool, "--node-id=node-a",
		"--kubelet-dir="+kubelet, "--endpoint="+endpoint, "--http-endpoint="+address, "--log-level=debug")
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), fakePath(t, everyTool()...)...)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	conn := drivertest.Dial(t, endpoint)
	drivertest.Ready(t, conn)

	seen := map[string]string{}
	for name, method := range drivertest.Methods(t, "csi.v1.Node") {
		for _, text := range []string{"", "x", "ext4", "../x", "node-a/" + strings.Repeat("a", 32), filepath.Join(kubelet, "staging")} {
			req := drivertest.Message(t, method.Input())
			drivertest.Fill(req.ProtoReflect(), text, canary)
			seen["the errors"] += fmt.Sprintln(name, drivertest.Call(t, conn, method, req))
		}
	}
	for _, file := range []string{"cmdline", "environ", "limits"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, file))
		must(t, err)
		seen[file] = string(text)
	}
	if core := regexp.MustCompile(`(?m)^Max core file size +0 +0 `); !core.MatchString(seen["limits"]) {
		t.Errorf("the program could leave a core dump with a passphrase in it:\n%s", seen["limits"])
	}
	_, seen["/metrics"] = drivertest.Page(t, "http://"+address+"/metrics")
	_, _ = cmd.Process.Kill(), cmd.Wait() // now log holds every line that the program has written
	seen["the log"] = log.String()
	for where, text := range seen {
		if text == "" || strings.Contains(text, canary) {
			t.Errorf("%s is empty or has the canary:\n%s", where, text)
		}
	}
	if !strings.Contains(seen["the log"], `"method":"NodeStageVolume"`) || !strings.Contains(seen["/metrics"], `method="NodeStageVolume"`) {
		t.Errorf("the test does not see what it should:\n%s", seen["the log"])
	}
	if found := append(drivertest.FilesWith(t, pool, canary), drivertest.FilesWith(t, kubelet, canary)...); len(found) > 0 {
		t.Errorf("the canary is in %v", found)
	}
}
