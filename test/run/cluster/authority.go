package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"
)

// authority is the cluster's own certificate authority; it lives as long as the cluster.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// identity is a certificate with its key, both as PEM.
type identity struct{ certificate, key []byte }

// lifetime is long for a test cluster and short for a certificate.
const lifetime = 30 * 24 * time.Hour

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(pkix.Name{CommonName: "cloudblock test cluster"})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{certificate: certificate, key: key, pem: encode("CERTIFICATE", der)}, err
}

// client issues what a user shows to the API server: its name, and the groups it is in.
func (a *authority) client(user string, groups ...string) (identity, error) {
	template, err := newTemplate(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return identity{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// server issues the certificate of a server that is reached by these names and addresses.
func (a *authority) server(names []string, addresses ...string) (identity, error) {
	template, err := newTemplate(pkix.Name{CommonName: names[0]})
	if err != nil {
		return identity{}, err
	}
	template.DNSNames = names
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return identity{}, err
	}
	encoded, err := encodeKey(key)
	return identity{certificate: encode("CERTIFICATE", der), key: encoded}, err
}

// signingKey is the key of service account tokens: the private half signs, the public half checks.
func signingKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if private, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	return private, encode("PUBLIC KEY", der), err
}

func newTemplate(name pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	// An hour back: a clock that is set right while the cluster starts does no harm.
	begin := time.Now().Add(-time.Hour)
	return &x509.Certificate{SerialNumber: serial, Subject: name, NotBefore: begin, NotAfter: begin.Add(lifetime)}, err
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return encode("EC PRIVATE KEY", der), err
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// save writes an identity to NAME.crt and NAME.key.
func (i identity) save(base string) error {
	if err := os.WriteFile(base+".crt", i.certificate, 0o644); err != nil {
		return err
	}
	return os.WriteFile(base+".key", i.key, 0o600)
}
