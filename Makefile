# `make` prints what there is. Targets that need programs beside Go say which before they start.

export GO ?= go
# Found out once, so that an image and its name are of one version.
export VERSION := $(or $(VERSION),$(shell git describe --tags --always --dirty 2>/dev/null || echo unknown))
export COMMIT  := $(or $(COMMIT),$(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown))
# Without buildvcs, because git shows root nothing of a clone that is somebody else's, and go fails then. One set of flags for
# all, and cgo for the race detector alone, which needs it: a package is compiled twice at most, and not again in another clone.
export GOFLAGS := $(strip -buildvcs=false -trimpath $(GOFLAGS))
export CGO_ENABLED ?= 0
BUILD   := -trimpath -ldflags "-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)"

CLOUD       ?= local
CLOUDS      := $(notdir $(wildcard deploy/overlays/*))
NODES       ?= 2
RUNS        ?= 100
SEED        ?= 1
CONTROLLERS ?= 1
FUZZTIME    ?= 10s

# golangci-lint and every other tool that is not part of the project is pinned in this one file.
TOOL := $(GO) tool -modfile=test/kit/tools/go.mod

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## Print this help
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-15s %s\n", $$1, $$2 }'

.PHONY: build
build: ## Build bin/cloudblock-controller and bin/cloudblock-node
	@test/progress.sh "building both programs" $(GO) build $(BUILD) -o bin/ ./cmd/controller ./cmd/node
	@mv bin/controller bin/cloudblock-controller && mv bin/node bin/cloudblock-node
	@# What root has built in somebody else's clone stays theirs to build again.
	@[ "$$(id -u)" != 0 ] || chown --reference=Makefile bin bin/cloudblock-controller bin/cloudblock-node

.PHONY: packages
packages: ## Install the programs other than Go that the suites need: SUITES, those of cluster and monitoring too (root, Debian or Ubuntu)
	@test/packages.sh $(SUITES)

.PHONY: demo
demo: ## Take volumes through their whole life on this machine, with real data: CLOUD=local, or an emulated one (root)
	@test/require.sh root loop mkfs.ext4 mkfs.xfs mount
	@case " $(CLOUDS) " in *" $(CLOUD) "*) ;; *) echo "CLOUD=$(CLOUD): known are $(CLOUDS)" >&2; exit 1 ;; esac
	@$(MAKE) --no-print-directory build
	@test/progress.sh "building the demo" $(GO) build -o bin/demo ./test/run/demo
	@bin/demo -bin bin -cloud $(CLOUD)

# REPORT prints each package as it finishes, what is under way, and one line at the end. It is built first, or nothing is said meanwhile.
REPORT = $(CURDIR)/bin/report

.PHONY: report
report:
	@test/progress.sh "building the report of the tests" $(GO) build -o bin/report ./test/run/report
	@[ "$$(id -u)" != 0 ] || chown --reference=Makefile bin bin/report

TESTS  = PATH="$$PATH:/usr/sbin:/sbin" bash -o pipefail -c

.PHONY: test
test: formatted report ## Run the tests that need no root, once
	@test/require.sh bash mkfs.ext4 mkfs.xfs
	@# Without vet, which is part of make lint, and without what only a debugger reads.
	@$(TESTS) '$(GO) test -vet=off -ldflags="-s -w" -json -short -timeout 30m -parallel 4 ./... | $(REPORT)'
	@echo "make verify also runs them with -race, every variant, and test/check/docs/install, test/check/manifests, test/check/charts and test/kit/tools"

# VARIED are the packages with tests that -short leaves out.
VARIED = $$(grep -rl "testing[.]Short()" --include="*_test.go" cmd internal test | xargs grep -L "^//go:build" | xargs -n1 dirname | sort -u | sed "s|^|./|")

.PHONY: test-all
test-all: report ## Run every test that needs no root: all with -race, and each variant of the clouds without it
	@test/require.sh bash gcc mkfs.ext4 mkfs.xfs
	@# -exec: what tests compile is without cgo too. The package that takes long and is late in the alphabet begins, or it runs alone at the end.
	@$(TESTS) 'CGO_ENABLED=1 $(GO) test -race $(if $(VARIANTS),,-short) -exec "env CGO_ENABLED=0" -vet=off -ldflags=-w -json -timeout 30m -parallel 4 ./test/run/chaos ./... | $(REPORT)'
	@# What -short leaves out. The race detector makes it five times as long: `make test-all VARIANTS=1` runs it with that too.
	@$(TESTS) '$(GO) test -vet=off -ldflags="-s -w" -json -timeout 30m -parallel 4 $(VARIED) | $(REPORT)'
	@cd test/kit/tools && $(TESTS) '$(GO) test -json ./... | $(REPORT)'
	@# Without -race, so that Kubernetes and Helm are compiled once. Without the cache: the tests also run programs, whose sources
	@# it does not see.
	@cd test/check/manifests && $(TESTS) '$(GO) test -json -count=1 ./... | $(REPORT)'
	@cd test/check/charts && $(TESTS) '$(GO) test -json -count=1 ./... | $(REPORT)'

.PHONY: sanity
sanity: ## Run csi-sanity: the controller over memory, both programs on local and on emulated clouds (root)
	@test/require.sh gcc root loop mkfs.ext4 mkfs.xfs mount
	@$(MAKE) --no-print-directory build
	cd test/run/sanity && CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 30m -parallel 16 -tags e2e . -v -args -bin $(CURDIR)/bin

.PHONY: e2e
e2e: ## Run the tests on real loop devices and filesystems: SHORT=1, the quicker half (root)
	@test/require.sh gcc root loop fuse mkfs.ext4 mkfs.xfs mkfs.btrfs mount cryptsetup
	@$(MAKE) --no-print-directory build
	@CLOUDBLOCK_BIN=$(CURDIR)/bin GO="$(GO)" SHORT="$(filter 1,$(SHORT))" test/e2e.sh

.PHONY: e2e-vm
e2e-vm: ## Test the node program in a virtual machine whose disks come, grow and go: SMOKE=1, ONLY (tests), CHURN (cycles) (root)
	@test/require.sh gcc root qemu-system-x86_64 debootstrap mkfs.ext4
	@$(MAKE) --no-print-directory build
	@$(MAKE) --no-print-directory -j2 vm-disks $(if $(SMOKE)$(CHURN),,vm-luks)

# One machine each, with one processor, at the same time.
VM_TEST = CLOUDBLOCK_BIN=$(CURDIR)/bin $(GO) test -count=1 -timeout 90m -tags vm $(if $(SMOKE),-short) $(if $(ONLY),-run '$(ONLY)') -v

.PHONY: vm-disks vm-luks
vm-disks:
	@$(VM_TEST) ./test/run/e2e/vm $(if $(CHURN),-args -churn $(CHURN))
vm-luks:
	@$(VM_TEST) ./test/run/e2e/vm/luks

.PHONY: e2e-monitoring
e2e-monitoring: ## Run a Prometheus over both programs and 200 volumes: the alerts fire and clear, the dashboard has data: PLOTS, a folder for plots (root)
	@test/require.sh gcc root loop mkfs.ext4 mkfs.xfs mount prometheus promtool
	@$(MAKE) --no-print-directory build
	@CLOUDBLOCK_BIN=$(CURDIR)/bin $(if $(PLOTS),CLOUDBLOCK_RECORDING=$(CURDIR)/bin/recording.json) $(GO) test -count=1 -timeout 20m -tags e2e -v ./test/check/monitoring
	$(if $(PLOTS),@cd test/kit/tools && $(GO) run ./plots $(CURDIR)/bin/recording.json $(abspath $(PLOTS)))
	@[ "$$(id -u)" != 0 ] || chown -R --reference=Makefile bin $(PLOTS)

.PHONY: e2e-real
e2e-real: ## Run the contract and a volume's life on a real account: CLOUD, TOKEN_FILE, REGION, MACHINES (docs/contributing/testing.md); or EMULATED=1
	@GO="$(GO)" $(REAL_ACCOUNT) EMULATED="$(EMULATED)" test/real.sh

.PHONY: e2e-real-clean
e2e-real-clean: ## Remove what a run of e2e-real made, and nothing else: RUN, and the account as before
	@GO="$(GO)" $(REAL_ACCOUNT) test/real.sh clean

REAL_ACCOUNT = CLOUD="$(CLOUD)" TOKEN_FILE="$(TOKEN_FILE)" REGION="$(REGION)" FOLDER="$(FOLDER)" MACHINES="$(MACHINES)" \
	ENDPOINT="$(ENDPOINT)" RUN="$(RUN)" VOLUMES="$(VOLUMES)" LIMIT="$(LIMIT)" CASSETTE="$(CASSETTE)"

.PHONY: cluster
cluster: ## Run a real Kubernetes with the driver on this machine, or refresh it: KUBERNETES=1.36, that release (root)
	@$(GO) run ./test/run/cluster up -cloud $(CLOUD) -nodes $(NODES)

.PHONY: cluster-down
cluster-down: ## Take that Kubernetes down, whatever is left of it (root)
	@$(GO) run ./test/run/cluster down

.PHONY: e2e-cluster
e2e-cluster: ## Test the driver in that Kubernetes, an upgrade from OLD (a commit), and the upstream storage suite (root)
	@$(if $(or $(if $(ONLY),,all),$(findstring upstream,$(ONLY))),$(GO) run ./test/run/cluster build-suite)
	@$(GO) run ./test/run/e2e/cluster/run -cloud $(CLOUD) $(if $(ONLY),-only $(ONLY)) $(if $(WIDE),-wide) $(if $(OLD),-old $(OLD))

# What the images are called, for every target below; build/names.sh has the defaults. The version is
# the one of the binaries.
IMAGE_NAMES = REGISTRY="$(REGISTRY)" TAG="$(TAG)"

.PHONY: images
images: ## Build the images for amd64 and arm64 with docker buildx: REGISTRY, TAG (default: the version), PUSH=1
	@$(IMAGE_NAMES) build/images.sh $(if $(PUSH),--push)
	@$(MAKE) --no-print-directory image-names

.PHONY: images-local
images-local: ## Build the images on this machine, without a registry, and test them: REGISTRY, TAG (root)
	@test/require.sh root buildah debootstrap
	@$(IMAGE_NAMES) CACHE="$(CACHE)" GO="$(GO)" build/images-local.sh
	@$(MAKE) --no-print-directory image-names

.PHONY: image-names
image-names: ## Write bin/images, a kustomize component with the images' names: REGISTRY, TAG
	@$(IMAGE_NAMES) build/names.sh component bin/images
	@[ "$$(id -u)" != 0 ] || chown -R --reference=Makefile bin
	@echo "bin/images sets these names in an overlay:"
	@$(IMAGE_NAMES) build/names.sh image controller
	@$(IMAGE_NAMES) build/names.sh image node

.PHONY: install-yaml
install-yaml: $(if $(PIN),pin,image-names) ## Render bin/install-<cloud>.yaml of every overlay, with the images' names: REGISTRY, TAG, PIN=1 adds digests
	@for cloud in $(CLOUDS); do \
		mkdir -p bin/install/$$cloud && \
		printf 'resources: [../../../deploy/overlays/%s]\ncomponents: [../../images]\n' $$cloud >bin/install/$$cloud/kustomization.yaml && \
		(cd test/check/manifests && $(GO) tool kustomize build ../../../bin/install/$$cloud) >bin/install-$$cloud.yaml || exit 1; \
		echo bin/install-$$cloud.yaml; \
	done
	@[ "$$(id -u)" != 0 ] || chown -R --reference=Makefile bin

IMAGES = $(abspath $(or $(CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cloudblock-csi)/images)

.PHONY: sbom
sbom: ## Write bin/{controller,node,lvm}.cdx.json: what the images of images-local are made of
	@mkdir -p bin
	@for image in controller node lvm; do \
		(cd test/kit/tools && $(GO) run ./sbom $(IMAGES)/$$image.tar) >bin/$$image.cdx.json && echo bin/$$image.cdx.json || exit 1; \
	done

.PHONY: chart
chart: ## Package the Helm chart into bin/chart, for the images' names: REGISTRY, TAG
	@GO="$(GO)" $(IMAGE_NAMES) build/chart.sh bin/chart

.PHONY: licences
licences: ## Print the licence of each module in the programs; fail where one is missing or not accepted
	@$(GO) run ./build/notices -list ./cmd/controller ./cmd/node

.PHONY: newer
newer: ## Fail if the registry has a newer release of a sidecar that the manifests name, or lacks the named one
	@GO="$(GO)" test/newer.sh

.PHONY: vulncheck
vulncheck: ## Fail if a program calls code with a known vulnerability: VULNDB, another database (default: https://vuln.go.dev)
	$(TOOL) govulncheck $(if $(VULNDB),-db $(VULNDB)) ./cmd/...

# A release, step by step: docs/contributing/releasing.md.
RELEASE_ENV = $(IMAGE_NAMES) CACHE="$(CACHE)" GO="$(GO)" BUILDER="$(BUILDER)" KEY="$(KEY)" IDENTITY="$(IDENTITY)"

.PHONY: release-images
release-images: ## Build and test what is released for this machine's architecture, in bin/dist: BUILDER=buildx (root)
	@test/require.sh root $(if $(filter buildx,$(BUILDER)),docker,buildah debootstrap)
	@$(RELEASE_ENV) build/release-images.sh

.PHONY: release-publish
release-publish: ## Push bin/dist and the chart by digest, sign, verify, and set the tags: REGISTRY, TAG, KEY (a pair of keys)
	@$(RELEASE_ENV) build/publish.sh

.PHONY: release-verify
release-verify: ## Verify in the registry what release-publish has published: REGISTRY, TAG, KEY or IDENTITY
	@$(RELEASE_ENV) build/verify.sh

.PHONY: release-files
release-files: install-yaml ## Collect the files of a release and their checksums in bin/release: REGISTRY, TAG (after release-publish)
	@test -e bin/dist/published || { echo "nothing is published: make release-publish" >&2; exit 1; }
	@rm -rf bin/release && mkdir -p bin/release
	@cp $(foreach cloud,$(CLOUDS),bin/install-$(cloud).yaml) bin/chart/*.tgz bin/dist/published bin/release
	@for sbom in bin/dist/*/*.cdx.json; do \
		architecture=$$(basename $$(dirname $$sbom)) && cp $$sbom bin/release/$$(basename $$sbom .cdx.json)-$$architecture.cdx.json || exit 1; \
	done
	@cd bin/release && sha256sum * >SHA256SUMS && cat SHA256SUMS
	@[ "$$(id -u)" != 0 ] || chown -R --reference=Makefile bin

.PHONY: release
release: release-images release-publish release-files ## All of these, for this machine's architecture: REGISTRY, TAG, KEY, PIN=1 (root)

.PHONY: release-run
release-run: ## Release to a registry on 127.0.0.1, verify it, and show that what was tampered with does not pass (root)
	@test/require.sh root buildah debootstrap
	@GO="$(GO)" CACHE="$(CACHE)" build/release-run.sh

.PHONY: release-github
release-github: ## Publish bin/release as GitHub's release TAG, with gh; a TAG with a hyphen is a pre-release
	@TAG="$(TAG)" build/github-release.sh

.PHONY: reproducible
reproducible: ## Build the programs in two folders, each from nothing, and compare them
	@GO="$(GO)" build/reproducible.sh

.PHONY: pin
pin: image-names ## Write bin/images with the digests of all images, the sidecars' too, from their registries: REGISTRY, TAG
	@GO="$(GO)" build/pin.sh bin/images/kustomization.yaml $(SIDECARS)

.PHONY: manifests
manifests: ## Render each overlay to deploy/testdata
	@for overlay in deploy/overlays/*/; do \
		(cd test/check/manifests && $(GO) tool kustomize build ../../../$$overlay) >deploy/testdata/$$(basename $$overlay).yaml || exit 1; \
	done

.PHONY: golden
golden: ## Write what docs/upgrade.md freezes: what the programs print, formats in which they store, and names
	UPDATE_GOLDEN=1 $(GO) test -vet=off -count=1 -run Frozen ./cmd/... ./internal/... ./test/check/compatibility

.PHONY: chaos
chaos: CLOUD = digitalocean
chaos: ## Random calls, faults and crashes in simulated time: CLOUD=an emulated one, RUNS, SEED, CONTROLLERS, BINARY=1, PLANT=a fault to find
	@$(if $(BINARY),$(MAKE) --no-print-directory build)
	@$(GO) run ./test/run/chaos -cloud $(CLOUD) -runs $(RUNS) -seed $(SEED) -controllers $(CONTROLLERS) $(if $(BINARY),-binary bin) $(if $(PLANT),-plant $(PLANT))

.PHONY: mutants
mutants: ## Plant faults in the source, one at a time, and fail where no test finds one: ONLY=part of a path
	@$(GO) run ./test/run/mutants $(if $(ONLY),-only $(ONLY))

.PHONY: failures
failures: ## Run the test of every row of docs/contributing/failures.md and print the table (root)
	@test/require.sh gcc root loop fuse mkfs.ext4 mkfs.xfs mkfs.btrfs mount
	@$(MAKE) --no-print-directory build
	@CLOUDBLOCK_BIN=$(CURDIR)/bin $(GO) run ./test/check/failures

.PHONY: bench
bench: ## Measure against bars: local (root), or CLOUD emulated; QUICK=1 or ONLY=part of the latter
	@$(if $(filter local,$(CLOUD)),test/require.sh root loop mkfs.ext4 mkfs.xfs mount)
	@$(MAKE) --no-print-directory build
	@$(GO) run ./test/run/bench -bin bin -cloud $(CLOUD) $(if $(QUICK),-quick) $(if $(ONLY),-only $(ONLY))

.PHONY: bench-vm
bench-vm: ## Measure stages in that virtual machine against the same by hand (root)
	@test/require.sh gcc root qemu-system-x86_64 debootstrap mkfs.ext4
	@$(MAKE) --no-print-directory build
	@CLOUDBLOCK_BIN=$(CURDIR)/bin $(GO) test -count=1 -timeout 60m -tags vm -run '^$$' -bench . -benchtime 1x ./test/run/e2e/vm

.PHONY: fuzz
fuzz: ## Fuzz every parser for FUZZTIME each
	@test/require.sh gcc
	@GO="$(GO)" test/fuzz.sh $(FUZZTIME)

.PHONY: formatted
formatted:
	@unformatted=$$(gofmt -l build cmd internal test) || exit 1; test -z "$$unformatted" || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }

.PHONY: lint
lint: formatted ## Run the linters and check the formatting
	@test/require.sh gcc
	$(GO) vet ./...
	$(TOOL) golangci-lint run --build-tags e2e,cluster,images,real,vm ./...
	cd test/run/sanity && $(GO) vet -tags e2e ./...
	cd test/check/manifests && $(GO) vet ./...
	cd test/kit/tools && $(GO) vet ./...
	cd test/check/manifests/oldest && $(GO) vet ./...
	cd test/check/charts && $(GO) vet -tags cluster ./...
	@# golangci-lint sees the root module only, and the files of these tags.
	@long=$$(find build cmd internal test -name '*.go' -exec awk 'FNR == 401 { print FILENAME }' {} +) || exit 1; test -z "$$long" || { echo "more than 400 lines:"; echo "$$long"; exit 1; }

.PHONY: lint-workflows
lint-workflows: ## Check .github/workflows with actionlint, and all scripts with shellcheck
	@test/require.sh shellcheck
	$(GO) tool -modfile=test/kit/tools/workflows/go.mod actionlint -pyflakes=
	shellcheck --severity=warning .ci/run build/*.sh test/*.sh test/kit/vm/*.sh

.PHONY: lint-units
lint-units: ## Check deploy/systemd with systemd-analyze, and its flags with the programs
	@test/require.sh systemd-analyze
	@$(MAKE) --no-print-directory build
	@test/units.sh bin deploy/systemd

.PHONY: generated
generated: ## Fail if go.mod or go.sum is not what `go mod tidy` writes
	$(GO) mod tidy -diff
	cd test/run/sanity && $(GO) mod tidy -diff
	cd test/check/manifests && $(GO) mod tidy -diff
	cd test/kit/tools && $(GO) mod tidy -diff
	cd test/kit/tools/workflows && $(GO) mod tidy -diff
	cd test/check/manifests/oldest && $(GO) mod tidy -diff
	cd test/check/charts && $(GO) mod tidy -diff

.PHONY: verify
verify: lint lint-workflows generated test-all ## What every commit must pass: lint, generated files unchanged, every test
