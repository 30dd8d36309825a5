package driver

import (
	"errors"
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// NewLogger returns a logger of the given level (debug, info, warn, error) and format (json,
// console), or an error that names both if both are wrong.
func NewLogger(level, format string, w io.Writer) (*zap.Logger, error) {
	min, err := parseLevel(level)
	encoding := zap.NewProductionEncoderConfig()
	encoding.TimeKey = "time"
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder
	var encoder zapcore.Encoder
	switch format {
	case "json":
		encoder = zapcore.NewJSONEncoder(encoding)
	case "console":
		encoder = zapcore.NewConsoleEncoder(encoding)
	default:
		err = errors.Join(err, fmt.Errorf("--log-format %q: not json or console: %w", format, fault.InvalidArgument))
	}
	if err != nil {
		return nil, err
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), min)), nil
}

func parseLevel(level string) (zapcore.Level, error) {
	switch level {
	case "debug":
		return zapcore.DebugLevel, nil
	case "info":
		return zapcore.InfoLevel, nil
	case "warn":
		return zapcore.WarnLevel, nil
	case "error":
		return zapcore.ErrorLevel, nil
	default:
		return 0, fmt.Errorf("--log-level %q: not debug, info, warn or error: %w", level, fault.InvalidArgument)
	}
}
