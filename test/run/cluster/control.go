package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/cluster/certificates"
)

// controlName is the machine of etcd, the API server and the controllers.
const controlName = "control"

// writeControlFiles makes every certificate, key and kubeconfig of the control machine, and the
// administrator's kubeconfig.
func writeControlFiles(l layout, ca *certificates.Authority) error {
	dir := l.run(controlName)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	server, err := ca.Server(
		[]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"},
		apiAddress, apiService, "127.0.0.1",
	)
	if err != nil {
		return err
	}
	kubeletClient, err := ca.Client("kube-apiserver", "system:masters")
	if err != nil {
		return err
	}
	private, public, err := certificates.SigningKey()
	if err != nil {
		return err
	}
	for _, err := range []error{
		server.Save(filepath.Join(dir, "apiserver")),
		kubeletClient.Save(filepath.Join(dir, "kubelet-client")),
		certificates.Identity{Certificate: public, Key: private}.Save(filepath.Join(dir, "service-accounts")),
		os.WriteFile(filepath.Join(dir, "ca.crt"), ca.PEM, 0o644),
	} {
		if err != nil {
			return err
		}
	}
	for path, who := range map[string][]string{
		filepath.Join(dir, "controller-manager.kubeconfig"): {"system:kube-controller-manager"},
		filepath.Join(dir, "scheduler.kubeconfig"):          {"system:kube-scheduler"},
		l.kubeconfig(): {"cluster-admin", "system:masters"},
	} {
		text, err := kubeconfigOf(ca, who[0], who[1:]...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// startControl starts etcd and the API server, waits until that answers this machine, and starts the
// controllers.
func startControl(ctx context.Context, l layout, m machine) error {
	etcd, err := m.start(l, "etcd", "--data-dir=/run/etcd", "--unsafe-no-fsync",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380")
	if err != nil {
		return err
	}
	err = etcd.ready(ctx, 30*time.Second, func(ctx context.Context) error {
		return healthy(ctx, m, "http://127.0.0.1:2379", "/health")
	})
	if err != nil {
		return err
	}
	api, err := m.start(l, inside("bin/kube-apiserver"), apiFlags(l, inside("run", controlName))...)
	if err != nil {
		return err
	}
	err = api.ready(ctx, 2*time.Minute, func(ctx context.Context) error { return apiReady(ctx, l) })
	if err != nil {
		return err
	}
	return startControllers(ctx, l, m)
}

func apiFlags(l layout, dir string) []string {
	flags := []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--advertise-address=" + apiAddress, "--secure-port=" + apiPort,
		"--cert-dir=/run/apiserver",
		"--tls-cert-file=" + dir + "/apiserver.crt", "--tls-private-key-file=" + dir + "/apiserver.key",
		"--client-ca-file=" + dir + "/ca.crt",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + dir + "/service-accounts.crt",
		"--service-account-signing-key-file=" + dir + "/service-accounts.key",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--kubelet-client-certificate=" + dir + "/kubelet-client.crt",
		"--kubelet-client-key=" + dir + "/kubelet-client.key",
		// Nothing resolves the nodes' names.
		"--kubelet-preferred-address-types=InternalIP",
		"--profiling=false",
	}
	if l.newest() {
		flags = append(flags, "--feature-gates=CSIVolumeHealth=true,MutablePVNodeAffinity=true")
	}
	return flags
}

// startControllers starts the two programs that only talk to the API server, and waits until the
// controllers have made what the first pod needs.
func startControllers(ctx context.Context, l layout, m machine) error {
	dir := inside("run", controlName)
	controllers, err := m.start(l, inside("bin/kube-controller-manager"),
		"--kubeconfig="+dir+"/controller-manager.kubeconfig", "--leader-elect=false", "--use-service-account-credentials",
		"--root-ca-file="+dir+"/ca.crt", "--service-account-private-key-file="+dir+"/service-accounts.key",
		// Its default is a folder of the host, which is read-only here.
		"--flex-volume-plugin-dir=/run/controller-manager/volumeplugins",
		"--cert-dir=/run/controller-manager", "--bind-address=127.0.0.1", "--profiling=false")
	if err != nil {
		return err
	}
	scheduler, err := m.start(l, inside("bin/kube-scheduler"),
		"--kubeconfig="+dir+"/scheduler.kubeconfig", "--leader-elect=false",
		"--cert-dir=/run/scheduler", "--bind-address=127.0.0.1", "--profiling=false")
	if err != nil {
		return err
	}
	err = controllers.ready(ctx, time.Minute, func(ctx context.Context) error {
		return runCommand(kubectl(ctx, l, "get", "serviceaccount", "default"))
	})
	if err != nil {
		return err
	}
	return scheduler.ready(ctx, time.Minute, func(ctx context.Context) error {
		return healthy(ctx, m, "https://127.0.0.1:10259", "/healthz")
	})
}

// apiReady asks the API server from this machine, as kubectl will.
func apiReady(ctx context.Context, l layout) error {
	answer, err := output(kubectl(ctx, l, "get", "--raw", "/readyz"))
	if err != nil {
		return err
	}
	if answer != "ok" {
		return fmt.Errorf("the API server answers %q", answer)
	}
	return nil
}

// healthy asks a program of the control machine that listens only there.
func healthy(ctx context.Context, m machine, server, path string) error {
	return runCommand(m.command(ctx, inside("bin/kubectl"), "get", "--raw", path, "--server="+server,
		"--insecure-skip-tls-verify", "--kubeconfig=/dev/null", "--token=anyone"))
}

//go:embed config
var configFiles embed.FS

// render fills in one of the templates in config/.
func render(name string, values any) ([]byte, error) {
	text, err := configFiles.ReadFile("config/" + name)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New(name).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, values)
	return out.Bytes(), err
}

// renderTo fills in a template and writes it to a file.
func renderTo(path, name string, values any) error {
	text, err := render(name, values)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// kubeconfigOf is a client's file: where the API server is, and who the client is.
func kubeconfigOf(a *certificates.Authority, user string, groups ...string) ([]byte, error) {
	who, err := a.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	return render("kubeconfig.tmpl", map[string]string{
		"Server":      "https://" + apiAddress + ":" + apiPort,
		"CA":          base64.StdEncoding.EncodeToString(a.PEM),
		"User":        user,
		"Certificate": base64.StdEncoding.EncodeToString(who.Certificate),
		"Key":         base64.StdEncoding.EncodeToString(who.Key),
	})
}
