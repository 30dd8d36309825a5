package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

func TestTheProgramServesAnAccount(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"--droplets", "2", "--token", "secret", "--tls-listen", "127.0.0.1:0", "--ca-file", authority,
			"--metadata-listen", "127.0.0.1:0"}, write)
		done <- err
		_ = write.CloseWithError(io.EOF) // a pipe's writer cannot fail to close
	}()
	var url, metadata, below string
	lines := bufio.NewScanner(read)
	for below == "" && lines.Scan() {
		switch words := strings.Fields(lines.Text()); {
		case words[0] == "API" && url == "":
			url = words[1]
		case words[0] == "droplet" && metadata == "":
			metadata = words[3]
		case words[0] == "droplet":
			below = words[3]
		}
	}
	if below == "" {
		t.Fatalf("run() = %v before it served anything", <-done)
	}
	go func() { _, _ = io.Copy(io.Discard, read) }() // what it says later must not block it
	for target, want := range map[string]string{
		url + "/v2/droplets": `"total":2`, metadata + "/metadata/v1/id": "3164001", metadata + "/metadata/v1": "hostname",
		below + "/metadata/v1/id": "3164002", below + "/metadata/v1": "hostname",
	} {
		if body := fetch(t, target, "secret"); !strings.Contains(body, want) {
			t.Errorf("GET %s = %s, want %s in it", target, body, want)
		}
	}
	if pem, err := os.ReadFile(authority); err != nil || !strings.Contains(string(pem), "BEGIN CERTIFICATE") {
		t.Errorf("authority = %s, %v", pem, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run() = %v after its context ended", err)
	}
}

func TestTheProgramServesLinode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"--cloud", "linode", "--machines", "2", "--token", "secret"}, write)
		done <- err
		_ = write.CloseWithError(io.EOF) // a pipe's writer cannot fail to close
	}()
	var url, metadata string
	lines := bufio.NewScanner(read)
	for metadata == "" && lines.Scan() {
		switch words := strings.Fields(lines.Text()); words[0] {
		case "API":
			url = words[1]
		case "linode":
			metadata = words[3]
		}
	}
	if metadata != url+"/linodes/20001" {
		t.Fatalf("metadata service at %q, run() = %v", metadata, <-done)
	}
	go func() { _, _ = io.Copy(io.Discard, read) }() // what it says later must not block it
	if body := fetch(t, url+"/v4/linode/instances", "secret"); !strings.Contains(body, `"results":2`) {
		t.Errorf("instances = %s, want two", body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run() = %v after its context ended", err)
	}
}

func TestTheProgramServesYandexCloud(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	keyFile := filepath.Join(t.TempDir(), "key.json")
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"--cloud", "yandex", "--machines", "2", "--region", "ru-central1-b", "--key-file", keyFile}, write)
		done <- err
		_ = write.CloseWithError(io.EOF) // a pipe's writer cannot fail to close
	}()
	var url, service string
	var ids []string
	lines := bufio.NewScanner(read)
	for len(ids) < 2 && lines.Scan() {
		switch words := strings.Fields(lines.Text()); words[0] {
		case "API":
			url = words[1]
		case "instance":
			ids, service = append(ids, words[1]), words[3]
		}
	}
	if len(ids) < 2 {
		t.Fatalf("run() = %v before it served anything", <-done)
	}
	go func() { _, _ = io.Copy(io.Discard, read) }() // what it says later must not block it
	conn, err := grpc.NewClient(strings.TrimPrefix(url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	asked := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer emulator-token")
	for _, id := range ids {
		instance, err := compute.NewInstanceServiceClient(conn).Get(asked, &compute.GetInstanceRequest{InstanceId: id})
		if err != nil || instance.GetZoneId() != "ru-central1-b" {
			t.Errorf("instance %s = %v, %v, want it in the zone", id, instance, err)
		}
	}
	if body := fetch(t, service+"/computeMetadata/v1/instance/id", ""); !strings.Contains(body, "Metadata-Flavor") {
		t.Errorf("metadata without its header = %s, want it refused", body)
	}
	if text, err := os.ReadFile(keyFile); err != nil || !strings.Contains(string(text), "service_account_id") {
		t.Errorf("key = %s, %v", text, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run() = %v after its context ended", err)
	}
}

func fetch(t *testing.T, url, token string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"--cloud", "linode", "--limits", "100/1m two words"}, {"--cloud", "linode", "--key-file", "/dev/null"},
		{"--cloud", "yandex", "--limits", "100/1m"},
		{"--cloud", "moon"}, {"--limits", "many"}, {"--action", "soon"}, {"--no-such-flag"},
		{"--tls-listen", "127.0.0.1:0"}, {"--listen", "nowhere"},
		{"--metadata-listen", "127.0.0.1:0,127.0.0.1:0"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := run(ctx, args, io.Discard); err == nil || ctx.Err() != nil {
			t.Errorf("run(%v) = %v, want an error at once", args, err)
		}
		cancel()
	}
}
