# The node program and the filesystem tools that it calls, with their libraries; no shell, no package
# manager. cmd/node/checks.go names the tools.
#
#   docker buildx build -f build/node.Dockerfile .    or    make images
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
    -o /out/cloudblock-node ./cmd/node && \
    go run ./build/notices ./cmd/node >/out/third-party

FROM docker.io/library/debian:trixie-slim AS tools
COPY build/node-tools.sh /node-tools.sh
RUN /node-tools.sh install && /node-tools.sh collect /out

FROM scratch
ARG VERSION=unknown
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="cloudblock-csi node" \
      org.opencontainers.image.source="https://github.com/cloudblock-csi/cloudblock-csi" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$COMMIT
COPY --from=tools /out /
COPY --from=build /out/cloudblock-node /cloudblock-node
# The terms of this program and of the modules compiled into it.
COPY LICENSE /licenses/cloudblock-csi
COPY --from=build /out/third-party /licenses/third-party
ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin
# Where transparent huge pages are always on, they fill the small heap up again behind the garbage collector (golang/go#64332).
ENV GODEBUG=disablethp=1
ENTRYPOINT ["/cloudblock-node"]
