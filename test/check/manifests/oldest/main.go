// Command oldest checks manifests against the API of the oldest Kubernetes that docs/compatibility.md names, which go.mod
// pins. It reads them from standard input and reports every kind and field that this Kubernetes does not have. It is a
// module of its own, because a module has one version of the API.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

func main() {
	manifests, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = check(string(manifests))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// check decodes each document. Objects of snapshot.storage.k8s.io and monitoring.coreos.com are custom resources, with a
// version of their own.
func check(manifests string) error {
	scheme := runtime.NewScheme()
	var wrong []error
	for _, add := range []func(*runtime.Scheme) error{
		admissionv1.AddToScheme, appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme,
	} {
		wrong = append(wrong, add(scheme))
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	decoded := 0
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		if strings.Contains(document, "apiVersion: snapshot.storage.k8s.io/") || strings.Contains(document, "apiVersion: monitoring.coreos.com/") {
			continue
		}
		object, kind, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%v: %w", kind, err))
		}
		if object != nil {
			decoded++
		}
	}
	if decoded == 0 {
		wrong = append(wrong, errors.New("found no object"))
	}
	return errors.Join(wrong...)
}
