package budget

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// StandardRate reads ratelimit-limit, -remaining and -reset (with or without "X-", the reset as
// seconds of the epoch or from now) and retry-after (seconds or a date).
func StandardRate(resp *http.Response) Rate {
	number := func(name string) (int, bool) {
		value := resp.Header.Get("Ratelimit-" + name)
		if value == "" {
			value = resp.Header.Get("X-Ratelimit-" + name)
		}
		n, err := strconv.Atoi(strings.TrimSpace(value))
		return n, err == nil && n >= 0
	}
	now := time.Now()
	var r Rate
	limit, limited := number("Limit")
	if remaining, ok := number("Remaining"); ok && limited {
		r.Limit, r.Remaining = limit, remaining
	}
	switch reset, ok := number("Reset"); {
	case !ok:
	case reset > 1e9:
		r.Reset = time.Unix(int64(reset), 0)
	default:
		r.Reset = now.Add(time.Duration(reset) * time.Second)
	}
	after := resp.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(after); err == nil && seconds > 0 {
		r.RetryAfter = time.Duration(min(seconds, int(mostTrusted.Seconds()))) * time.Second
	} else if date, err := http.ParseTime(after); err == nil && date.After(now) {
		r.RetryAfter = date.Sub(now)
	}
	return r
}
