# Everything a developer does. `make` alone explains itself.

# One set of flags for all that is compiled here. -trimpath and CGO_ENABLED are part of the key of every package in Go's
# build cache: with two settings client-go and what it needs would be compiled twice, 200 CPU seconds of it.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false

MODULE  := github.com/assay-project/assay
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# Targets that test with memory that is overwritten before it is reused (rules/poison). Programs that their tests build have it, too.
test-unit test-integration test-sim sim twin: export GOFLAGS += -tags=poison
# A compiler that collects garbage less often takes less time, a third for the largest packages. The limit is for the linker.
COMPILE := GOGC=400 GOMEMLIMIT=2500MiB go build
LDFLAGS := -s -w -X $(MODULE)/internal/build.version=$(VERSION) -X $(MODULE)/internal/build.commit=$(COMMIT)

# Pinned tools, each in a module of its own so that none raises a version that Assay itself uses. `go tool` compiles them
# once and keeps the binary in Go's build cache, by version.
CONTROLLER_GEN = go tool -modfile=hack/tools/controller-gen/go.mod controller-gen
HELM           = go tool -modfile=hack/chart/go.mod helm
GOLANGCI_LINT  = go tool -modfile=hack/tools/golangci-lint/go.mod golangci-lint

.DEFAULT_GOAL := help

##@ Everyday

.PHONY: help
help: # Those behind #+ are shown by `make help ALL=1`
	@awk 'BEGIN {FS = ":.*#[#$(if $(ALL),+)] "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*#[#$(if $(ALL),+)] / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'make help ALL=1 shows all targets, hack/measure what can be measured.'

.PHONY: build
build: ## Build the programs into bin/
	$(COMPILE) -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: install
install: ## Install the command line into $(go env GOPATH)/bin, as assay and kubectl-assay
	$(COMPILE) -ldflags '$(LDFLAGS)' -o "$$(go env GOPATH)/bin/" ./cmd/assay
	ln -sf assay "$$(go env GOPATH)/bin/kubectl-assay"

.PHONY: test
test: ## Run all tests, unit tests first, and print the time of each stage
	@MAKE='$(MAKE)' hack/stages compile test-unit test-race test-sim test-integration+test-node test-chart+test-emulated-short+test-ui+test-registry

# What stages that run at the same time would both compile.
.PHONY: compile
compile: bin/cluster
	@echo "== Kubernetes and Helm: compiling them, unless they are cached"
	@bin/cluster build >/dev/null
	@$(HELM) version >/dev/null
	@go tool -C hack/helm3 -n helm >/dev/null

.PHONY: test-unit
test-unit: ## Run the tests that need nothing but Go
	@echo "== unit tests"
	@go test $$(hack/packages unit)

# Packages of integration tests take turns with control planes, but for those that start their own, and mostly wait for something
# to happen: two packages that take eight minutes each on a control plane use two minutes of a processor.
CLUSTERS ?= 3
PACKAGES ?= 6

.PHONY: test-integration
test-integration: bin/cluster ## Run the tests that need a real control plane (the first time builds Kubernetes: 5 to 12 minutes)
	@echo "== integration tests"
	@bin/cluster run --clusters=$(CLUSTERS) -- go test -p=$(PACKAGES) -count=1 -timeout=20m $$(hack/packages integration)

# The version of Kubernetes as which the API server behaves, and whether only the tests of requests run, as in `make test`.
EMULATED ?= 1.34
SHORT ?=

.PHONY: test-emulated
test-emulated: bin/cluster #+ Test chart, admission and scheduling on an API server that behaves as Kubernetes $(EMULATED) (SHORT=1: a few tests)
	@echo "== Kubernetes $(EMULATED)"
	@$(HELM) template assay charts/assay --namespace=assay-system --kube-version=$(EMULATED).0 --include-crds --skip-tests --no-hooks >bin/emulated.yaml
	@ASSAY_EMULATED_VERSION=$(EMULATED) bin/cluster run -- sh -ec '\
		go test -p=1 -count=1 -timeout=20m $(if $(SHORT),-run="TestWorkloadsOfRequests|TestWebhookAndPolicyWriteTheSameSelector") ./webhook ./test/scheduling; \
		kubectl create namespace assay-system --dry-run=client --output=yaml | kubectl apply --server-side -f - -f bin/emulated.yaml >bin/emulated.log; \
		echo "the chart for Kubernetes $(EMULATED) applies: $$(wc -l <bin/emulated.log) objects"'

.PHONY: test-emulated-short
test-emulated-short:
	@$(MAKE) --no-print-directory test-emulated SHORT=1

.PHONY: demo
demo: ## Label this machine from its real hardware on a real control plane (KEEP=1 leaves it running, KIND=1 uses kind, ASSAY_DEMO_COMPILE=1 downloads no programs)
	$(if $(KIND),hack/demo-kind,@$(MAKE) --no-print-directory demo-here)

# The command line is built first: it needs no cluster to show what the rules of the demo give on this machine.
.PHONY: demo-here
demo-here:
	@echo "== Building the command line"
	@$(COMPILE) -ldflags '$(LDFLAGS)' -o bin/ ./cmd/assay
	bin/assay scan 'kernel.version' 'cpu.model' 'system.*' 2>/dev/null
	bin/assay eval --local --quiet examples/platform.yaml examples/tier.yaml
	@echo "== Building the other programs, and obtaining a control plane"
	@$(MAKE) --no-print-directory build
	@go run ./test/demo $(if $(KEEP),--keep)

.PHONY: demo-down
demo-down: ## Stop what `make demo KEEP=1` left running (KIND=1: delete the cluster of kind)
	$(if $(KIND),hack/demo-kind --down,go run ./test/demo --down)

##@ Before a commit

.PHONY: generate
generate: ## Generate deep copies, CustomResourceDefinitions, docs/reference.md and docs/cli.md from the code
	$(CONTROLLER_GEN) object paths=./api/...
	$(CONTROLLER_GEN) crd paths=./api/assay/... paths=./api/nfd/... output:crd:dir=charts/assay/crds
	$(CONTROLLER_GEN) crd paths=./api/topology/... output:crd:dir=charts/assay/files/topology
	go run ./hack/crds charts/assay/crds/*.yaml
	go run ./hack/reference docs/reference.md
	go run ./cmd/assay docs markdown > docs/cli.md.new && mv docs/cli.md.new docs/cli.md

.PHONY: verify
verify: ## Check what no test checks: format, vet, generated code, go.mod, the arrows between packages, lint
	hack/verify

.PHONY: lint
lint: #+ Run golangci-lint (the first time compiles it: some minutes)
	$(GOLANGCI_LINT) run

##@ To deliver

# The one date that goes into images, so that the same commit gives the same bytes (reproducible-builds.org).
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
PLATFORMS ?= linux/amd64,linux/arm64

.PHONY: images
images: ## Build the container images as OCI archives in dist/ (PLATFORMS=linux/amd64 for one platform, IMAGES=assay-worker for one image)
	go run -C hack/images . -root $(CURDIR) -out $(CURDIR)/dist -version '$(VERSION)' -commit '$(COMMIT)' -ldflags '$(LDFLAGS)' -platforms '$(PLATFORMS)' $(IMAGES)

.PHONY: push
push: ## Build all images, push them, and print the command that installs them (REGISTRY=registry.example.com/assay; PLAIN_HTTP=1 without TLS)
	@$(if $(REGISTRY),,echo "push: no registry: use for example make push REGISTRY=registry.example.com/assay" >&2; exit 2)
	@go run -C hack/images . -root $(CURDIR) -out $(CURDIR)/dist -version '$(VERSION)' -commit '$(COMMIT)' -ldflags '$(LDFLAGS)' -platforms '$(PLATFORMS)' \
		-push -repository '$(REGISTRY)' $(if $(PLAIN_HTTP),-plain-http)

.PHONY: release
release: ## Make all files of a release of this commit in dist/VERSION (VERSION=v1.2.3, SIGNING_KEY=FILE; see docs/release.md)
	go run ./hack/release -out dist/$(VERSION) -version '$(VERSION)' -platforms '$(PLATFORMS)' $(if $(SIGNING_KEY),-key '$(SIGNING_KEY)')

.PHONY: verify-release
verify-release: #+ Verify the files of a release (DIST=dist/v1.2.3 KEY=assay.pub)
	go run ./hack/release verify -key '$(KEY)' '$(DIST)'

.PHONY: reproduce
reproduce: #+ Make the release twice, the second time without a build cache, and compare (VERSION=v1.2.3; QUICK=1 shares the cache)
	hack/reproduce '$(VERSION)'

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities that the programs can reach (DB=URL for another database than vuln.go.dev)
	@DB='$(DB)' hack/vulncheck

.PHONY: chart
chart: ## Generate the chart's copies, schema, values.md and the kustomize base, and check the chart
	go run ./charts/generate
	$(HELM) lint --strict charts/assay
	$(HELM) template assay charts/assay --namespace assay-system --skip-tests --no-hooks | go run ./charts/generate -base hack/kustomize/base

.PHONY: chart-schemas
chart-schemas: #+ Extract the schemas that the chart is validated with from the sources of Kubernetes (downloads 120 MB)
	go run -C hack/chart ./schemas/extract schemas

.PHONY: test-chart
test-chart: #+ Test the images and the chart: its templates, schema and rendering (the first time compiles Helm: 2 minutes)
	@echo "== images and chart"
	@go test -C hack/images ./...
	@go test -C hack/chart ./...
	@go test -C hack/helm3 ./...

.PHONY: test-node
test-node: ## Install the chart on a real node: kubelet and containerd in namespaces of their own (Linux, root; skipped elsewhere)
	@echo "== real node"
	@go build -o bin/test-node ./test/node && bin/test-node

.PHONY: test-autoscaler
test-autoscaler: build #+ Scale up real Karpenter for pods that require features, on nodes of kwok (the first time compiles both: 3 to 5 minutes)
	@echo "== autoscaler: compiling Karpenter and kwok, unless they are cached"
	@go build -C hack/autoscaler -ldflags='-s -w' -o $(CURDIR)/bin/karpenter sigs.k8s.io/karpenter/kwok
	@go build -C hack/autoscaler -ldflags='-s -w' -o $(CURDIR)/bin/kwok sigs.k8s.io/kwok/cmd/kwok
	@go build -C hack/autoscaler -ldflags='-s -w' -o $(CURDIR)/bin/dra-kwok-driver sigs.k8s.io/karpenter/dra-kwok-driver
	@go run ./test/autoscaler

.PHONY: test-kueue
test-kueue: build #+ Admit a job that requires features, and place jobs by levels, with real Kueue (the first time compiles it: 3 to 6 minutes)
	@echo "== Kueue: compiling it, unless it is cached"
	@go build -C hack/kueue -ldflags='-s -w' -o $(CURDIR)/bin/kueue sigs.k8s.io/kueue/cmd/kueue
	@go run ./test/kueue

.PHONY: compare-nfd
compare-nfd: build #+ Compare labels, groups and features with real Node Feature Discovery (the first time compiles it: 3 to 6 minutes; SEED=7 NODES=200)
	@echo "== Node Feature Discovery: compiling it, unless it is cached"
	@go build -C hack/nfd -ldflags='-s -w' -o $(CURDIR)/bin/ sigs.k8s.io/node-feature-discovery/cmd/nfd-master sigs.k8s.io/node-feature-discovery/cmd/nfd-worker
	@go run ./test/nfd $(if $(SEED),-seed $(SEED)) $(if $(NODES),-nodes $(NODES))

.PHONY: test-ui
test-ui: #+ Test the pages of assay ui in Chromium (installed with apt-get where that is possible; skipped elsewhere)
	@echo "== browser"
	@hack/debian-package browser 'chromium chromium-browser google-chrome' 'chromium fonts-dejavu-core'
	@go test -C hack/browser -count=1 -timeout=20m ./...

.PHONY: site
site: ## Build the documentation as a site with search into bin/site (needs Node.js 20 and npm; SITE_BASE=/docs/ for a host that serves it there)
	npm ci --prefix site
	npm run build --prefix site

.PHONY: test-site
test-site: site ## Test the site in Chromium: search, links, the width of a phone (ASSAY_PICTURES=DIR writes pictures)
	@hack/debian-package browser 'chromium chromium-browser google-chrome' 'chromium fonts-dejavu-core'
	@ASSAY_SITE=$(CURDIR)/bin/site go test -C hack/browser -count=1 -timeout=20m -run='Site|Search|Phone' -v ./...

.PHONY: test-registry
test-registry: #+ Test compatibility artifacts in Debian's docker-registry (installed with apt-get where that is possible; skipped elsewhere)
	@echo "== registry"
	@hack/debian-package registry docker-registry docker-registry
	@go test ./internal/imagecompat/registry -run=TestDockerRegistry -count=1 -v

##@ Now and then

.PHONY: test-descheduler
test-descheduler: bin/cluster #+ Test that the descheduler moves pods off a node that lost a feature (the first time compiles it: minutes)
	go build -C hack/descheduler -o $(CURDIR)/bin/descheduler sigs.k8s.io/descheduler/cmd/descheduler
	ASSAY_DESCHEDULER=$(CURDIR)/bin/descheduler bin/cluster run -- go test ./test/scheduling -run=TestTheDescheduler -count=1 -v

.PHONY: test-helm
test-helm: bin/cluster #+ Test what Helm 3 and 4 do with the chart: eight paths of installations, upgrades and take-overs each
	ASSAY_WHOLE_TABLE=1 bin/cluster run -- go test ./test/helm -count=1 -v

.PHONY: test-numa-scheduler
test-numa-scheduler: bin/cluster #+ Test that the scheduler plug-in NodeResourceTopologyMatch reads what is published (the first time compiles it: minutes)
	go test -C hack/fingerprint .
	go build -C hack/numascheduler -o $(CURDIR)/bin/numascheduler .
	ASSAY_NUMASCHEDULER=$(CURDIR)/bin/numascheduler bin/cluster run -- go test ./test/numa -count=1 -v

SEEDS ?= 2000
FIRST ?= 1

# The injected defects are all found within 1,000 schedules.
.PHONY: test-sim
test-sim:
	@hack/sim 1000 1

.PHONY: sim
sim: ## Simulate schedules of events and faults: SEEDS=100000 RUNS=1 for more, SEED=17 for the story of one (LOG=1 with logs, SHRINK=1 cut short)
	$(if $(SEED),go test ./internal/sim -count=1 -timeout=0 -v -run=TestStory -sim.seed=$(SEED) $(if $(LOG),-sim.log) $(if $(SHRINK),-sim.shrink),@hack/sim $(SEEDS) $(FIRST))

FOR ?= 1m

.PHONY: twin
twin: ## Compare Nodes with an independent evaluation of what is stored: SEED=7 SEEDS=20 FOR=10m FORM=A, with random changes and restarts
	$(COMPILE) -o bin/poison/ ./cmd/assay ./cmd/assay-manager ./test/twin
	bin/poison/twin -manager bin/poison/assay-manager -assay bin/poison/assay $(if $(SEED),-seed $(SEED)) $(if $(filter-out file,$(origin SEEDS)),-seeds $(SEEDS)) -for $(FOR) $(if $(FORM),-form $(FORM)) $(TWIN_FLAGS)

# The last form that was delivered; releases, once there are some.
FROM ?= d355e5e

.PHONY: test-rollback
test-rollback: ## Upgrade from an older commit and roll back, twice, with real workers and a watch on every Node (FROM=d355e5e)
	@NODES=$(NODES) hack/rollback $(FROM)

.PHONY: test-race
test-race: #+ Run the tests of the pure packages under the race detector (needs a C compiler; skipped without)
	@hack/race pure

.PHONY: race
race: bin/cluster ## Run all tests under the race detector (compiles client-go again: minutes)
	@hack/race all

.PHONY: race-long
race-long: bin/cluster ## Run the packages with the most goroutines under the race detector, three times each, with two and with four processors
	@hack/race long

.PHONY: man
man: #+ Write the man pages of the command line into bin/man
	go run ./cmd/assay docs man bin/man

FAULTS ?= 200

.PHONY: test-faults
test-faults: build ## Disturb Assay on a real control plane: FAULTS=1000 NODES=200 SEED=7, then takeovers, rotations, an outage (SCENARIOS=none: without)
	go build -o bin/faults ./test/faults
	bin/faults -faults $(FAULTS) $(if $(NODES),-nodes $(NODES)) $(if $(SEED),-seed $(SEED)) $(if $(SCENARIOS),-scenarios $(SCENARIOS)) $(FAULTS_FLAGS)

.PHONY: clean
clean: ## Remove what the targets above left in the tree
	rm -rf bin dist

bin/cluster: FORCE
	@go build -o $@ ./test/cluster/cmd/cluster

.PHONY: FORCE
FORCE:
