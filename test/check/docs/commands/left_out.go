package commands

import "strings"

// leftOut are commands of the documents that cannot be tried, each with the reason. A name is the whole command or, with "..." at
// its end, how the command begins.
var leftOut = map[string]string{
	"-n cloudblock-digitalocean exec...":                                                       doctor,
	"-n cloudblock-linode exec...":                                                             doctor,
	"-n cloudblock-yandex exec...":                                                             doctor,
	"-n cloudblock-linode logs POD -c node --previous":                                         "no container of the driver has crashed",
	"apply --server-side -k https://github.com/kubernetes-csi/external-snapshotter/...":        "it needs the network; make cluster applies the same files from the pinned module",
	"apply -f https://raw.githubusercontent.com/kubernetes-csi/external-snapshot-metadata/...": "it needs the network; make cluster applies the same file from the pinned module",
	"apply -f -":                  "its input is what the command before it prints",
	"apply --dry-run=server -f -": "the same",
	"apply -f":                    "a sentence about what takes a file, which it does not name",
	"taint nodes NODE node.kubernetes.io/out-of-service-": "no node has the taint",
	podsOfLocal: "the pods of this driver run in the cluster of local only",
}

const doctor = "the flags are those of a real account; a test of the programs runs doctor"

// podsOfLocal can be tried in a cluster of local.
const podsOfLocal = "-n cloudblock-local exec $pod..."

// LeftOut returns why the command cannot be tried in a cluster whose driver uses this backend, and nothing if it can.
func (c Command) LeftOut(cloud string) string {
	name := c.leftOut()
	if name == podsOfLocal && cloud == "local" {
		return ""
	}
	return leftOut[name]
}

// leftOut returns the name of the command in the map; "" if it is not there.
func (c Command) leftOut() string {
	line := strings.Join(c.Args, " ")
	for name := range leftOut {
		if beginning, is := strings.CutSuffix(name, "..."); line == name || is && strings.HasPrefix(line, beginning) {
			return name
		}
	}
	return ""
}
