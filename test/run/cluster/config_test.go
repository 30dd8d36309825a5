package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func testNode() *node {
	return &node{machine: machine{Name: "node-2"}, number: 2, Dir: "/run/cluster/run/node-2", PodNetwork: podNetwork(2), PauseImage: pauseImage, Pods: podNetworks}
}

func TestTemplatesAreFilledIn(t *testing.T) {
	for name, wants := range map[string][]string{
		"containerd.toml.tmpl": {`sandbox_image = "` + pauseImage + `"`, `conf_dir = "/run/cluster/run/node-2/cni"`},
		"kubelet.yaml.tmpl":    {"clientCAFile: /run/cluster/run/node-2/ca.crt", "failCgroupV1: false"},
		"kube-proxy.yaml.tmpl": {"kubeconfig: /run/cluster/run/node-2/kube-proxy.kubeconfig}", "hostnameOverride: node-2", "clusterCIDR: 10.244.0.0/16"},
		"cni.conflist.tmpl":    {`"subnet": "10.244.2.0/24"`},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := render(name, testNode())
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range wants {
				if !strings.Contains(string(text), want) {
					t.Errorf("%s lacks %q:\n%s", name, want, text)
				}
			}
		})
	}
}

func TestCNIConfigurationIsJSON(t *testing.T) {
	text, err := render("cni.conflist.tmpl", testNode())
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(text) {
		t.Errorf("not JSON:\n%s", text)
	}
}

func TestAMissingValueIsAnError(t *testing.T) {
	if text, err := render("kubeconfig.tmpl", map[string]string{"Server": "x"}); err == nil {
		t.Errorf("render with values missing = %s", text)
	}
}

func TestKubeconfigHoldsTheServerAndTheAuthority(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	text, err := ca.kubeconfig("someone", "a-group")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"server: https://10.250.0.1:6443\n", "- name: someone\n", "client-key-data: LS0t"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the kubeconfig lacks %q:\n%s", want, text)
		}
	}
}
