package main

import (
	"strings"
	"testing"
)

const account = "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: a\n"

func TestWhatThisKubernetesDoesNotHaveIsReported(t *testing.T) {
	for name, tc := range map[string]struct{ manifests, want string }{
		"what it has":           {account + "---\n" + account, ""},
		"a field of a newer":    {strings.Replace(account, "  name: a", "  name: a\nnewField: true", 1), "newField"},
		"a kind of a newer":     {"apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata:\n  name: a\n", "MutatingAdmissionPolicy"},
		"a field written twice": {account + "kind: ServiceAccount\n", "kind"},
		"nothing":               {"", "no object"},
	} {
		err := check(tc.manifests)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: check = %v, want an error about %q", name, err, tc.want)
		}
	}
}
