# The controller: one static program and the certificates of the public authorities, nothing else. It
# writes nothing, needs no user of its own and no shell.
#
#   docker buildx build -f build/controller.Dockerfile .    or    make images
FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26.8-trixie AS build
ARG TARGETOS=linux
ARG TARGETARCH
ARG VERSION=unknown
ARG COMMIT=unknown
# Where Go keeps modules and what it has compiled; build/images-local.sh lends it the machine's own.
ARG GOMODCACHE=/go/pkg/mod
ARG GOCACHE=/root/.cache/go-build
WORKDIR /src
COPY go.mod go.sum ./
COPY cmd cmd
COPY internal internal
COPY build/notices build/notices
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" \
    -o /out/cloudblock-controller ./cmd/controller && \
    go run ./build/notices ./cmd/controller >/out/third-party

FROM scratch
ARG VERSION=unknown
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="cloudblock-csi controller" \
      org.opencontainers.image.source="https://github.com/cloudblock-csi/cloudblock-csi" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$COMMIT
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/cloudblock-controller /cloudblock-controller
# The terms of this program and of the modules compiled into it.
COPY LICENSE /licenses/cloudblock-csi
COPY --from=build /out/third-party /licenses/third-party
# A number, so that Kubernetes can see that it is not root. The local overlay sets root, for the pool.
USER 65532:65532
ENTRYPOINT ["/cloudblock-controller"]
