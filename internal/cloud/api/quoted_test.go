package api_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// P3: net/http and the decoder repeat what they cannot read. Errors become events in the claim's namespace, so none has the token, and
// none is as long as the line that it is about.
func TestNoErrorAboutAnAnswerHasTheToken(t *testing.T) {
	for name, answer := range map[string]string{
		"a status line":  "Bearer the-token\r\n\r\n",
		"a header":       "HTTP/1.1 200 OK\r\nBearer the-token\r\n\r\n",
		"a length":       "HTTP/1.1 200 OK\r\nContent-Length: the-token\r\n\r\n",
		"a content type": "HTTP/1.1 200 OK\r\nContent-Type: the-token\r\nContent-Length: 2\r\n\r\n{}",
		"an encoding":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: the-token\r\n\r\n{}",
		"a long line":    "HTTP/1.1 200 OK\r\n" + strings.Repeat("x", 100_000) + "\r\n\r\n",
		"a field":        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n" + `{"done":"the-token"}`,
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			defer func() { _ = l.Close() }()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Read(make([]byte, 4096))
					_, _ = io.WriteString(conn, answer)
					_ = conn.Close()
				}
			}()
			c := client(api.DefaultTransport())
			c.Endpoint = "http://" + l.Addr().String()
			var into struct{ Done bool }
			err = c.Do(t.Context(), api.Request{Doing: "read it", Method: http.MethodGet, Path: "/it"}, &into)
			if err == nil || strings.Contains(err.Error(), "the-token") || len(err.Error()) > 500 {
				t.Errorf("Do = %.600v", err)
			}
			if fault.Of(err) != fault.Unavailable {
				t.Errorf("the kind is %q, want %q", fault.Of(err), fault.Unavailable)
			}
		})
	}
}

// An event is lost if its text is not UTF-8, so a long message is cut between characters.
func TestALongMessageIsCutBetweenCharacters(t *testing.T) {
	for _, before := range []string{"", "x"} {
		if line := api.Line(before+strings.Repeat("ж", 1000), ""); !utf8.ValidString(line) || len(line) < 290 {
			t.Errorf("Line = %q", line)
		}
	}
}
