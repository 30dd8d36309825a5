package main

import (
	"bytes"
	"embed"
	"encoding/base64"
	"os"
	"path/filepath"
	"text/template"
)

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

// kubeconfig is a client's file: where the API server is, and who the client is.
func (a *authority) kubeconfig(user string, groups ...string) ([]byte, error) {
	who, err := a.client(user, groups...)
	if err != nil {
		return nil, err
	}
	return render("kubeconfig.tmpl", map[string]string{
		"Server":      "https://" + apiAddress + ":" + apiPort,
		"CA":          base64.StdEncoding.EncodeToString(a.pem),
		"User":        user,
		"Certificate": base64.StdEncoding.EncodeToString(who.certificate),
		"Key":         base64.StdEncoding.EncodeToString(who.key),
	})
}
