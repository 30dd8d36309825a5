package driver

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/zap"
)

// metricsPage serves /metrics. One page at a time is made, and everybody who asked before it was begun gets it: whoever asks
// without pause costs no more than one collection at a time, and keeps nobody else out.
type metricsPage struct {
	registry prometheus.Gatherer
	log      *zap.Logger
	making   chan struct{} // has a place for whoever makes or reads what follows

	begun  time.Time
	format expfmt.Format
	body   []byte
	err    error
}

func newMetricsPage(registry prometheus.Gatherer, log *zap.Logger) *metricsPage {
	return &metricsPage{registry: registry, log: log, making: make(chan struct{}, 1), format: expfmt.NewFormat(expfmt.TypeTextPlain)}
}

func (p *metricsPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), httpTimeout/2)
	defer cancel()
	select {
	case p.making <- struct{}{}:
	case <-ctx.Done():
		say(w, http.StatusServiceUnavailable, "the metrics are still being collected for an earlier request")
		return
	}
	body, err := p.since(asked)
	if err != nil {
		p.log.Warn("collect metrics", zap.Error(err))
		say(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", string(p.format))
	_, _ = w.Write(body) // a client that went away is no failure of ours
}

// since returns a page that was begun after a moment, and gives the place in making back.
func (p *metricsPage) since(asked time.Time) ([]byte, error) {
	defer func() { <-p.making }()
	if !p.begun.After(asked) {
		p.begun = time.Now()
		p.body, p.err = nil, errors.New("a collector has panicked")
		p.body, p.err = p.collect()
	}
	return p.body, p.err
}

func (p *metricsPage) collect() ([]byte, error) {
	families, err := p.registry.Gather()
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	to := expfmt.NewEncoder(&body, p.format)
	for _, family := range families {
		if err := to.Encode(family); err != nil {
			return nil, err
		}
	}
	return body.Bytes(), nil
}
