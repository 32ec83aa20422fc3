# Thin: each target is one or two commands. `make help` lists them.
CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto
TARGET = $(or $(CARGO_TARGET_DIR),target)
# As the tests built it: `cargo run -p` would compile its dependencies again, with other features.
TESTBED = $(TARGET)/debug/testbed
# Seeds of each kind that `make seeds` runs.
SEEDS ?= 200
# How long `make fuzz` takes, all targets together.
SECONDS ?= 60
# How long `make attacks` attacks.
ATTACK_SECONDS ?= 600
# The group of figures that `make bench` measures; all of them if it is empty.
FIGURE ?=
# `tenth` measures clusters of a tenth of the size, and judges only ratios and counts.
SIZE ?= full
# Everything, with the features that the image has: traces, and shutdowns delayed by systemd-logind.
ALL = --locked --workspace --features usher/traces,usher/logind
# The version of cargo-deny that `make deny` was tried with.
DENY = 0.19.0

ifeq ($(RUSTC_WORKSPACE_WRAPPER),clippy-driver)
# As in .ci/run: clippy's driver compiles what the tests run and lints it on the way, so nothing is compiled for lints alone.
LINT = $(CARGO) test $(ALL) --no-run && $(CARGO) test $(ALL) --no-run --benches && $(CARGO) build $(ALL) --bins --examples
# The binary that clusters get is kept where .ci/run wants it, before that of the tests takes its place.
LINT_OF_IMAGE = $(CARGO) build $(ALL) --no-default-features --bin usher && { [ -z "$(USHER_IMAGE_BINARY)" ] || cp $(TARGET)/debug/usher "$(USHER_IMAGE_BINARY)"; }
else
LINT = $(CARGO) clippy $(ALL) --all-targets -- -D warnings && $(CARGO) clippy --locked -p usher -- -D warnings
LINT_OF_IMAGE = $(CARGO) clippy $(ALL) --no-default-features --bin usher -- -D warnings
endif

.PHONY: help demo test test-real test-long installed seeds soak attacks check check-crates install-deny deny fuzz bench record image

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Without -p, which would compile the dependencies with other features than `make test`.
demo: toolchain ## what Usher does for pods, on an embedded cluster, in under a minute
	$(CARGO) run --locked --bin usher -- demo

test: toolchain ## all tests that need Rust and a C linker only
	hack/test

test-real: toolchain ## what only a real control plane can judge: builds etcd, Kubernetes and kubectl once (needs Go and root)
	$(CARGO) build $(ALL) --bins --examples
	$(TESTBED) build --for-tests
	hack/test real

test-long: toolchain ## all tests on both clusters, 200 seeds of each kind, ten minutes of attacks, upgrades, many pods, benchmarks at a tenth
	$(CARGO) build $(ALL) --bins --examples
	$(TESTBED) build --for-tests
	USHER_SEEDS=$(SEEDS) hack/test
	USHER_ATTACK_SECONDS=$(ATTACK_SECONDS) USHER_INSTALLED=all hack/test long
	$(MAKE) bench SIZE=tenth

installed: toolchain ## the image of 'make image' on real nodes, by kustomize and by the chart: drained, upgraded, uninstalled (needs root)
	hack/image "" target/usher.tar
	$(CARGO) build $(ALL) --bins --examples
	$(TESTBED) build --for-tests
	USHER_INSTALLED=all USHER_IMAGE=$(CURDIR)/target/usher.tar $(CARGO) test $(ALL) --test installed -- --include-ignored --nocapture

seeds: toolchain ## 200 seeds (SEEDS=) each of eviction requests, maintenances, surges, interference, drains that stand still and callers with few rights, in virtual time
	USHER_SEEDS=$(SEEDS) $(CARGO) test --locked --release -p usher-tests --test seeds

soak: toolchain ## ten times as many seeds, 2,000 of the cluster itself, and a maintenance of 50 nodes: hours
	USHER_SEEDS=2000 $(CARGO) test --locked --release -p usher-tests --test seeds
	USHER_SEEDS=2000 $(CARGO) test --locked --release -p usher-tests --test embedded a_cluster_finds
	USHER_NODES=50 $(CARGO) test $(ALL) --test many_pods -- --include-ignored

attacks: toolchain ## ten minutes (ATTACK_SECONDS=) of users with few rights and strangers against a manager on a real control plane
	$(CARGO) build $(ALL) --bins --examples
	$(TESTBED) build
	USHER_ATTACK_SECONDS=$(ATTACK_SECONDS) $(CARGO) test $(ALL) --test attacks -- --nocapture

check: toolchain ## format, lints, generated files, dependency direction; licences and sources of crates where cargo-deny is installed
	$(CARGO) fmt --all --check
	$(LINT_OF_IMAGE)
	$(LINT)
	hack/check-generated
	hack/check-dependencies
	@if command -v cargo-deny >/dev/null; then $(MAKE) check-crates; \
	else echo "!! check: licences, bans and sources of crates are not checked, cargo-deny is missing; 'make install-deny' installs it"; fi

check-crates: ## licences, bans and sources of the crates we depend on, without the network
	$(CARGO) deny --log-level error --locked --workspace check --hide-inclusion-graph bans licenses sources

install-deny: toolchain ## cargo-deny, which `make check` and `make deny` use; unoptimised, as it runs for seconds and compiles for minutes
	$(CARGO) install --locked --debug cargo-deny --version $(DENY)

deny: toolchain ## advisories, licences, bans and sources of the crates we depend on (needs the network for the advisories)
	@command -v cargo-deny >/dev/null || { echo "cargo-deny is missing: make install-deny"; exit 1; }
	$(CARGO) deny --locked --workspace check --hide-inclusion-graph

fuzz: toolchain ## SECONDS=60 of fuzzing: reviews, watch events, annotations, drain plans, kubeconfigs (stable Rust, needs a C++ compiler)
	hack/fuzz $(SECONDS)

bench: toolchain ## the figures of docs/benchmarks.md next to their baselines: all, or FIGURE=requests; SIZE=tenth takes minutes
	$(CARGO) bench --locked --profile figures -p usher-tests-real --bench figures -- $(FIGURE) --size $(SIZE)

record: toolchain ## ask the real control plane for the corpus' answers and the scenarios' ends again, and the Go descheduler for its decisions
	$(CARGO) build $(ALL) --bins --examples
	$(TESTBED) build --for-tests
	USHER_RECORD=1 $(CARGO) test $(ALL) --test control_plane the_recordings_are
	USHER_RECORD=1 $(CARGO) test $(ALL) --test judge
	USHER_RECORD=1 $(CARGO) test $(ALL) --test control_plane the_go_descheduler_still

image: toolchain ## the container image of the manager, with docker, podman or buildah; ARCHIVE=usher.tar also saves it
	hack/image "" "$(ARCHIVE)"

.PHONY: toolchain
toolchain:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust $$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer, e.g. with rustup"; exit 1; }
	@command -v cc >/dev/null || { echo "a C linker is missing: apt-get install gcc libc6-dev"; exit 1; }
