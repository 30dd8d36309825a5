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

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// serving runs the program until the test is over, and returns the address of the API and what it prints of each of its two machines.
func serving(t *testing.T, machine string, args ...string) (url string, machines [][]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, args, write)
		_ = write.CloseWithError(io.EOF) // a pipe's writer cannot fail to close
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run() = %v after its context ended", err)
		}
	})
	lines := bufio.NewScanner(read)
	for len(machines) < 2 && lines.Scan() {
		switch words := strings.Fields(lines.Text()); {
		case words[0] == "API" && url == "":
			url = words[1]
		case words[0] == machine:
			machines = append(machines, words)
		}
	}
	if len(machines) < 2 {
		t.Fatal("run() ended before it served anything")
	}
	go func() { _, _ = io.Copy(io.Discard, read) }() // what it says later must not block it
	return url, machines
}

func TestTheProgramServesAnAccount(t *testing.T) {
	authority := filepath.Join(t.TempDir(), "ca.pem")
	url, droplets := serving(t, "droplet", "--droplets", "2", "--token", "secret", "--tls-listen", "127.0.0.1:0", "--ca-file", authority,
		"--metadata-listen", "127.0.0.1:0")
	first, second := droplets[0][3], droplets[1][3]
	for target, want := range map[string]string{
		url + "/v2/droplets": `"total":2`, first + "/metadata/v1/id": "3164001", second + "/metadata/v1/id": "3164002",
	} {
		if body := fetch(t, target, "Authorization", "Bearer secret"); !strings.Contains(body, want) {
			t.Errorf("GET %s = %s, want %s in it", target, body, want)
		}
	}
	if pem, err := os.ReadFile(authority); err != nil || !strings.Contains(string(pem), "BEGIN CERTIFICATE") {
		t.Errorf("authority = %s, %v", pem, err)
	}
}

func TestTheProgramServesLinode(t *testing.T) {
	url, linodes := serving(t, "linode", "--cloud", "linode", "--machines", "2", "--token", "secret")
	if metadata := linodes[0][3]; metadata != url+"/linodes/20001" {
		t.Errorf("metadata service at %q", metadata)
	}
	if body := fetch(t, url+"/v4/linode/instances/20002", "Authorization", "Bearer secret"); !strings.Contains(body, `"id":20002`) {
		t.Errorf("the second Linode = %s", body)
	}
}

func TestTheProgramServesYandexCloud(t *testing.T) {
	keyFile := filepath.Join(t.TempDir(), "key.json")
	url, instances := serving(t, "instance", "--cloud", "yandex", "--machines", "2", "--region", "ru-central1-b", "--key-file", keyFile)
	conn, err := grpc.NewClient(strings.TrimPrefix(url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	asked := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer emulator-token")
	for _, words := range instances {
		instance, err := compute.NewInstanceServiceClient(conn).Get(asked, &compute.GetInstanceRequest{InstanceId: words[1]})
		if err != nil || instance.GetZoneId() != "ru-central1-b" {
			t.Errorf("instance %s = %v, %v, want it in the zone", words[1], instance, err)
		}
	}
	if body := fetch(t, instances[0][3]+"/computeMetadata/v1/instance/id"); !strings.Contains(body, "Metadata-Flavor") {
		t.Errorf("metadata without its header = %s, want it refused", body)
	}
	if text, err := os.ReadFile(keyFile); err != nil || !strings.Contains(string(text), "service_account_id") {
		t.Errorf("key = %s, %v", text, err)
	}
}

func fetch(t *testing.T, url string, header ...string) string {
	t.Helper()
	return expect.Fetch(t, http.MethodGet, url, "", header...).Body
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
