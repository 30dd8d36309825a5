// Package certificates issues what the programs of a cluster know each other by.
package certificates

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

// Authority is the cluster's own certificate authority; it lives as long as the cluster.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	PEM         []byte // the certificate, for those who check what it issued
}

// Identity is a certificate with its key, both as PEM.
type Identity struct{ Certificate, Key []byte }

// lifetime is long for a test cluster and short for a certificate.
const lifetime = 30 * 24 * time.Hour

// New makes an authority with a key of its own.
func New() (*Authority, error) {
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
	return &Authority{certificate: certificate, key: key, PEM: encode("CERTIFICATE", der)}, err
}

// Client issues what a user shows to the API server: its name, and the groups it is in.
func (a *Authority) Client(user string, groups ...string) (Identity, error) {
	template, err := newTemplate(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return Identity{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// Server issues the certificate of a server that is reached by these names and addresses.
func (a *Authority) Server(names []string, addresses ...string) (Identity, error) {
	template, err := newTemplate(pkix.Name{CommonName: names[0]})
	if err != nil {
		return Identity{}, err
	}
	template.DNSNames = names
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return a.issue(template)
}

func (a *Authority) issue(template *x509.Certificate) (Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Identity{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return Identity{}, err
	}
	encoded, err := encodeKey(key)
	return Identity{Certificate: encode("CERTIFICATE", der), Key: encoded}, err
}

// SigningKey makes the key of service account tokens: the private half signs, the public half checks.
func SigningKey() (private, public []byte, err error) {
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

// Save writes an identity to NAME.crt and NAME.key.
func (i Identity) Save(base string) error {
	if err := os.WriteFile(base+".crt", i.Certificate, 0o644); err != nil {
		return err
	}
	return os.WriteFile(base+".key", i.Key, 0o600)
}
