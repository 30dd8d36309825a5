package driver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

func TestNewLogger(t *testing.T) {
	var out bytes.Buffer
	log, err := driver.NewLogger("warn", "json", &out)
	must(t, err)
	log.Info("not this")
	log.Warn("this", zap.String("a", "b"))
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["msg"] != "this" || line["a"] != "b" || line["time"] == nil {
		t.Errorf("the log is %q, %v", out.String(), err)
	}
	for _, bad := range [][2]string{{"trace", "json"}, {"", "json"}, {"INFO", "json"}, {"info", "xml"}, {"info", ""}} {
		if _, err := driver.NewLogger(bad[0], bad[1], &out); err == nil {
			t.Errorf("NewLogger(%q): no error", bad)
		}
	}
	out.Reset()
	if log, err = driver.NewLogger("debug", "console", &out); err != nil {
		t.Fatal(err)
	}
	log.Debug("for people")
	if !strings.Contains(out.String(), "for people") || strings.HasPrefix(out.String(), "{") {
		t.Errorf("the console log is %q", out.String())
	}
}

func TestSecretShowsNothing(t *testing.T) {
	const canary = "canary-91ab"
	secret := driver.NewSecret(canary)
	holder := struct{ Token driver.Secret }{secret}
	var out bytes.Buffer
	log, err := driver.NewLogger("debug", "json", &out)
	must(t, err)
	log.Info("x", zap.Any("a", secret), zap.Any("b", holder), zap.Stringer("c", secret), zap.Reflect("d", &holder))
	if encoded, err := json.Marshal(holder); err != nil || string(encoded) != `{"Token":"***"}` {
		t.Errorf("JSON is %s, %v", encoded, err)
	} else {
		out.Write(encoded)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+verb, secret, holder)
	}
	fmt.Fprint(&out, secret, &secret, holder, fmt.Errorf("x: %v", secret))
	if strings.Contains(out.String(), canary) || strings.Contains(out.String(), fmt.Sprintf("%x", canary)) {
		t.Errorf("the secret shows: %s", out.String())
	}
	if secret.Reveal() != canary {
		t.Error("the secret is lost")
	}
}
