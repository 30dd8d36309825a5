package programs

import (
	"context"
	"errors"
	"os"
)

// StartController starts the controller alone, for calls that need no machine but only its name. Stop of
// the pair ends it.
func StartController(ctx context.Context, opts Options) (*Pair, error) {
	if opts.Cloud == nil {
		return nil, errors.New("a controller alone needs a cloud that is not on this machine")
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, err
	}
	flags, err := opts.Cloud.Controller(opts.Dir)
	if err != nil {
		return nil, err
	}
	controller, err := opts.start(ctx, "controller", flags, nil)
	if err != nil {
		return nil, err
	}
	return &Pair{Controller: controller, opts: opts}, nil
}
