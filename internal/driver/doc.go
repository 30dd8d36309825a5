// Package driver is the part of a CSI plugin that both programs share: the gRPC server on its unix socket with its interceptors,
// the Identity service, the public names, the checks of request fields, the locks, and the one place where an error becomes a gRPC
// status.
package driver
