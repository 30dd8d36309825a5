package drivertest

import (
	"errors"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

// CommandLine is one that is refused: its arguments, and a word of each of its mistakes, which are each on a
// line of their own.
type CommandLine [2][]string

// Local returns a command line that both programs take, and more behind it.
func Local(more ...string) []string {
	return append([]string{"--cloud=local", "--local-pool=/pool", "--node-id=node-a"}, more...)
}

// WrongFlags are command lines with mistakes in the flags that both programs have.
func WrongFlags() map[string]CommandLine {
	return map[string]CommandLine{
		"local without its flags": {[]string{"--cloud=local"}, []string{"--local-pool: required", "--node-id: required"}},
		"a relative pool":         {[]string{"--cloud=local", "--local-pool=pool", "--node-id=a"}, []string{`--local-pool "pool": not an absolute path`}},
		"pools with bad names and folders": {
			[]string{"--cloud=local", "--node-id=a", "--local-pool=A=/a", "--local-pool=b=b", "--local-pool==/c", "--local-pool=d=lvm:d/thin"},
			[]string{`--local-pool "A=/a"`, `--local-pool "b=b": not an absolute path`, `--local-pool "=/c"`, `--local-pool "d=lvm:d/thin": not of the form lvm:VG`},
		},
		"pools of one name or folder": {
			[]string{"--cloud=local", "--node-id=a", "--local-pool=/a", "--local-pool=/b", "--local-pool=c=/c", "--local-pool=c=/d", "--local-pool=e=/a/"},
			[]string{`--local-pool "/b": there is one pool without a name already`, `--local-pool "c=/d": another pool has this name`, `--local-pool "e=/a/": another pool has this folder`},
		},
		"a node id that is no node name":     {[]string{"--cloud=local", "--local-pool=/p", "--node-id=../a"}, []string{"--node-id"}},
		"an unknown flag and a wrong number": {Local("--colour=red", "--max-volumes=many"), []string{"-colour", `--max-volumes "many"`}},
		"two unknown flags and a stray word": {Local("--colour", "red", "--shape"), []string{"-colour", `argument "red"`, "-shape"}},
		"zero volumes":                       {Local("--max-volumes=0"), []string{"--max-volumes"}},
		"a number that does not fit":         {Local("--max-volumes=99999999999"), []string{"--max-volumes"}},
		"an endpoint that is no socket":      {Local("--endpoint=tcp://1.2.3.4:5"), []string{"--endpoint"}},
		"an endpoint with a relative path":   {Local("--endpoint=unix://csi.sock"), []string{"--endpoint"}},
		"an http endpoint without a port":    {Local("--http-endpoint=localhost"), []string{"--http-endpoint"}},
		"an http endpoint with a named port": {Local("--http-endpoint=localhost:http"), []string{"--http-endpoint"}},
		"both log flags wrong":               {Local("--log-level=loud", "--log-format=xml"), []string{"--log-level", "--log-format"}},
		"a driver name that is no domain":    {Local("--driver-name=a/b"), []string{"--driver-name"}},
		"a topology key of another scope":    {Local("--topology-key=a.example/zone=zone"), []string{"--topology-key"}},
		"a flag without its value":           {Local("--log-level"), []string{"-log-level"}},
		"a mistake in each of several places": {
			[]string{"--log-level=x", "--max-volumes=-1", "--driver-name=-", "--topology-key=q"},
			[]string{"--cloud", "--log-level", "--max-volumes", "--driver-name", "--topology-key"},
		},
	}
}

// WantRefused wants each command line to be refused with exactly the mistakes that it has.
func WantRefused(t *testing.T, parse func(args []string) error, lines map[string]CommandLine) {
	t.Helper()
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			args, mistakes := line[0], line[1]
			err := parse(args)
			if !errors.Is(err, driver.ErrCommandLine) {
				t.Fatalf("parse(%q) = %v, want an error of the command line", args, err)
			}
			if got := strings.Split(err.Error(), "\n")[1:]; len(got) != len(mistakes) {
				t.Fatalf("parse(%q) names %d mistakes, want %d:\n%s", args, len(got), len(mistakes), strings.Join(got, "\n"))
			}
			for _, want := range mistakes {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("parse(%q) = %v, want it to name %s", args, err, want)
				}
			}
		})
	}
}
