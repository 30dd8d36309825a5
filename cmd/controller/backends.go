package main

import (
	"context"

	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local"
)

// backend is one place for volumes that this program can be pointed at.
type backend struct {
	// scope is what its volumes are bound to, in the words of --topology-key.
	scope cloud.Scope
	// perNode: the program runs once on every node, and says which one on its socket.
	perNode bool
	// validate checks the flags that only this backend has, and reports every mistake.
	validate func(c *config) error
	// open makes the backend, and what ends its work before the program ends. The flags have been checked.
	open func(ctx context.Context, c config, log *zap.Logger) (cloud.Cloud, closer, error)
}

// closer ends what a backend still has under way, within the life of its context.
type closer func(ctx context.Context) error

// backends is the table of all. This is the only file that imports them.
var backends = map[string]backend{
	"local": {
		scope:    cloud.ScopeNode,
		perNode:  true,
		validate: (*config).validateLocal,
		open: func(ctx context.Context, c config, log *zap.Logger) (cloud.Cloud, closer, error) {
			l, err := local.New(ctx, local.Config{Pool: c.LocalPool, Node: c.NodeID, Log: log})
			if err != nil {
				return nil, nil, err
			}
			return l, l.Close, nil
		},
	},
}
