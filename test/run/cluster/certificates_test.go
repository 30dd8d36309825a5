package main

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
)

func TestCertificatesAreOfTheAuthority(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	other, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	server, err := ca.server([]string{"kubernetes"}, apiAddress)
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.client("system:node:node-1", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		who   identity
		roots *authority
		use   x509.ExtKeyUsage
		host  string
		works bool
	}{
		{"a server by its name", server, ca, x509.ExtKeyUsageServerAuth, "kubernetes", true},
		{"a server by its address", server, ca, x509.ExtKeyUsageServerAuth, apiAddress, true},
		{"a server by another address", server, ca, x509.ExtKeyUsageServerAuth, hostAddress, false},
		{"a server of another authority", server, other, x509.ExtKeyUsageServerAuth, "kubernetes", false},
		{"a client", client, ca, x509.ExtKeyUsageClientAuth, "", true},
		{"a client posing as a server", client, ca, x509.ExtKeyUsageServerAuth, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			leaf := parsePair(t, test.who)
			roots := x509.NewCertPool()
			roots.AddCert(test.roots.certificate)
			_, err := leaf.Verify(x509.VerifyOptions{
				Roots: roots, DNSName: test.host, KeyUsages: []x509.ExtKeyUsage{test.use},
			})
			if (err == nil) != test.works {
				t.Errorf("Verify = %v, want success: %v", err, test.works)
			}
		})
	}
	subject := parsePair(t, client).Subject
	if got := subject.CommonName + " " + strings.Join(subject.Organization, ","); got != "system:node:node-1 system:nodes" {
		t.Errorf("the client is %q", got)
	}
}

// parsePair also fails if the key does not belong to the certificate.
func parsePair(t *testing.T, who identity) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(who.certificate, who.key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}
