# The only entry points; CI calls them too. Every target is idempotent and says which step it is in.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# A test run starts some hundreds of Python processes. Where this is set, each of them compiles all that it imports:
# two thirds of the CPU time that a command of ours needs to start.
unexport PYTHONDONTWRITEBYTECODE

UV_VERSION := 0.13.7
TOOLS := $(CURDIR)/build/tools
UV := $(TOOLS)/bin/uv
PY := $(CURDIR)/.venv/bin/python
TEST_PY := $(CURDIR)/.venv-test/bin/python
DATA_FOLDER ?= $(or $(PENSTOCK_DATA_FOLDER),$(CURDIR)/.data)
TESTS ?=

SDK_SOURCES := $(shell find sdk/rust sdk/Cargo.toml sdk/Cargo.lock sdk/pyproject.toml sdk/penstock_build.py -type f \( -name '*.rs' -o -name '*.toml' -o -name '*.lock' -o -name '*.py' \) 2>/dev/null)
PAGE_SOURCES := $(shell find frontend -type f -not -path '*/node_modules/*' -not -path '*/dist/*' 2>/dev/null)

# Flags and profile under which dependencies are compiled once for the native core, its lints and its tests.
CORE_PROFILE := --locked --release --config test-profile.toml

# Two cores have work for three: while one waits for the network, a node or a browser, another compiles.
SIDE_BY_SIDE := 3
comma := ,

# Printed at once, also where the output of side by side recipes is kept back until each has ended: hence the plus.
say = +@printf '\033[1m== %s\033[0m\n' "$(1)"

.PHONY: help run test soak sanitize check bench services openapi screenshots clean lock
.PHONY: check-python check-rust check-page check-generated
.PHONY: test-tools test-core test-page test-sdk test-server test-platform test-ring test-stores

help: ## what can be made here
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 16
	@printf 'bench-<name>    one benchmark: %s\n' "$$(ls tests/bench | sed -nE 's/^bench_(.*)\.py$$/\1/p' | tr '\n' ' ')"

run: .venv/.server frontend/dist/.built ## set everything up and start Penstock with the demo dataset (PORT=8080, DATA_FOLDER=.data; every PENSTOCK_ variable counts)
	$(call say,starting Penstock (Ctrl-C stops it))
	@PENSTOCK_DATA_FOLDER="$(DATA_FOLDER)" exec .venv/bin/penstock up --demo$(if $(PORT), --port $(PORT))

test: test-tools ## every test, on real services that it fetches and starts itself
	@$(MAKE) -j $(SIDE_BY_SIDE) --output-sync=target $(TEST_SETUP)
	$(call say,tests: $(SIDE_BY_SIDE) groups at a time$(comma) each printed when it ends: $(TEST_GROUPS))
	@$(MAKE) -j $(SIDE_BY_SIDE) --output-sync=target $(TEST_GROUPS)

soak: .venv-test/.server build/.services ## the long forms of the tests, with full counts
	$(call say,soak: full repetition counts)
	$(if $(TESTS),,PENSTOCK_SOAK=1 PROPTEST_CASES=4096 scripts/cargo.sh test -q $(CORE_PROFILE) -p penstock-core)
	PENSTOCK_SOAK=1 $(TEST_PY) -m pytest --timeout 7200 $(or $(TESTS),tests/property tests/fault)

# Blocks of the arena go through many hands: a sanitizer sees use after return, overruns and leaks that tests cannot.
# Its runtime comes with the compiler; the option has no stable name yet.
sanitize: ## the native core's tests under AddressSanitizer
	@scripts/require.sh rust
	$(call say,sanitize: native core)
	cd sdk && RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=allocator_may_return_null=1 \
	  CARGO_TARGET_DIR=$(CURDIR)/build/sanitized cargo test -q --locked --target $$(rustc -vV | sed -n 's/^host: //p') -p penstock-core

check: ## linters, types, import rules, generated files
	$(call say,checks: $(SIDE_BY_SIDE) at a time$(comma) each printed when it ends)
	@$(MAKE) -j $(SIDE_BY_SIDE) --output-sync=target check-python check-rust check-page check-generated

bench: .venv-test/.server build/.services ## every benchmark, or NAMES="edge plan"; rewrites their tables in docs/benchmarks.md
	$(TEST_PY) scripts/benchmarks.py $(NAMES)

bench-%: .venv-test/.server build/.services
	PYTHONPATH=tests $(TEST_PY) tests/bench/bench_$*.py

services: .venv-test/.server build/.services ## start Cassandra, Redis and PostgreSQL by hand and wait (Ctrl-C stops them)
	PYTHONPATH=tests $(TEST_PY) -m harness.services

openapi: .venv-test/.server frontend/node_modules/.installed ## write openapi.json and the page's client from the server's code
	scripts/openapi.sh write

screenshots: .venv-test/.server frontend/dist/.built build/.services ## take the pictures of the documents anew
	PENSTOCK_DOC_PICTURES="$(CURDIR)/docs/pictures" $(TEST_PY) -m pytest tests/e2e -k pictures_of_the_documents

lock: $(UV) ## resolve the Python locks anew
	cd requirements && for name in run test; do \
	  $(UV) pip compile -q --generate-hashes --python-version 3.11 --no-header $$name.in -o $$name.lock; done

clean: ## remove what was built (not the data folder)
	rm -rf build .venv .venv-test frontend/dist frontend/node_modules sdk/target tests/relay/target
	find sdk/python -name '*.so' -delete

# -- set-up ---------------------------------------------------------------------------------------

$(UV):
	@scripts/require.sh python
	$(call say,set-up: uv $(UV_VERSION))
	python3.11 -m venv $(TOOLS)
	$(TOOLS)/bin/pip install -q --disable-pip-version-check uv==$(UV_VERSION)

.venv/.deps: requirements/run.lock | $(UV)
	$(call say,set-up: Python packages)
	test -x $(PY) || $(UV) venv -q --python 3.11 .venv
	$(UV) pip sync -q --python $(PY) requirements/run.lock
	touch $@

.venv-test/.deps: requirements/test.lock | $(UV)
	$(call say,set-up: Python packages of the tests (torch is large))
	test -x $(TEST_PY) || $(UV) venv -q --python 3.11 .venv-test
	$(UV) pip sync -q --python $(TEST_PY) requirements/test.lock
	touch $@

# The dependencies of the core need no Python package: they are compiled while those are fetched.
build/.crates: sdk/Cargo.toml sdk/Cargo.lock sdk/penstock_build.py
	@scripts/require.sh python rust
	$(call say,set-up: crates of the native core (minutes the first time))
	scripts/cargo.sh build -q --locked --release -p penstock-core
	mkdir -p build && touch $@

.venv-test/.native: build/.crates

# A stamp between two others, which make would take away when it ends.
.PRECIOUS: %/.native

# `uv pip sync` takes out what the lock does not name, so the two packages of our own come after it.
%/.native: %/.deps $(SDK_SOURCES)
	@scripts/require.sh rust
	$(call say,set-up: native core (minutes the first time))
	scripts/build_native.sh $(CURDIR)/$*
	touch $@

%/.server: %/.native pyproject.toml
	$(call say,set-up: server)
	$(UV) pip install -q --python $(CURDIR)/$*/bin/python --no-deps --no-build-isolation -e .
	touch $@

frontend/node_modules/.installed: frontend/package-lock.json
	@scripts/require.sh node
	$(call say,set-up: packages of the page)
	cd frontend && npm ci --no-audit --no-fund --loglevel=error
	touch $@

frontend/dist/.built: frontend/node_modules/.installed $(PAGE_SOURCES)
	$(call say,set-up: page)
	cd frontend && npm run --silent build
	touch $@

build/.services:
	@scripts/require.sh java
	$(call say,set-up: services of the tests)
	scripts/install_test_services.sh
	mkdir -p build && touch $@

# -- checks ---------------------------------------------------------------------------------------

check-python: .venv-test/.server
	$(call say,check: Python)
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/mypy backend workers sdk/python tests scripts migrations
	.venv-test/bin/lint-imports
	cd sdk && $(TEST_PY) -m mypy.stubtest penstock._native --allowlist .mypy-stubtest-allowlist --mypy-config-file ../pyproject.toml

check-rust:
	@scripts/require.sh python rust
	$(call say,check: Rust)
	scripts/cargo.sh fmt --check
	scripts/cargo.sh clippy -q --all-targets $(CORE_PROFILE) -- -D warnings
	cd tests/relay && cargo fmt --check && cargo clippy -q --all-targets --locked -- -D warnings

check-page: frontend/node_modules/.installed
	$(call say,check: page)
	cd frontend && npm run --silent lint && npm run --silent typecheck

check-generated: .venv-test/.server frontend/node_modules/.installed
	$(call say,check: generated files and locks)
	scripts/openapi.sh check
	$(TEST_PY) scripts/check_locks.py

# -- tests ----------------------------------------------------------------------------------------

# A machine that stalls for seconds can fail a test on real processes and clusters through no fault of the code: one
# second chance, printed as a rerun in the summary, and a rerun is looked into. What was lost, came twice or came wrong
# gets none: no stall excuses that, and a race that loses a sample in one run of ten would pass in 99 of 100.
NO_EXCUSE := never came|came more than once|wrong bytes|is torn|was acknowledged
SECOND_CHANCE := --reruns 1 --reruns-delay 5 --rerun-except '$(NO_EXCUSE)'

# First what compiles, then the longest, so that none is left alone at the end. All set-up comes before: a group that had
# to wait for some of it would begin after all others.
TEST_SETUP := .venv-test/.server frontend/dist/.built build/.services
TEST_GROUPS := test-core test-page test-ring test-stores test-platform test-server test-sdk

RING_TESTS := tests/fault/engine tests/integration/store/test_store_cql_ring.py tests/integration/harness/test_ring.py
PLATFORM_TESTS := tests/e2e tests/integration/jobs tests/fault/test_local_worker.py \
  tests/fault/test_frozen_local_worker.py tests/fault/test_worker_faults.py
SDK_TESTS := tests/unit/sdk tests/property tests/packaging

# What is missing is said before minutes are spent on what is there.
test-tools:
	@scripts/require.sh python rust node java

test-core: build/.crates
	$(call say,test: native core and relay)
	scripts/cargo.sh test -q $(CORE_PROFILE) -p penstock-core
	cd tests/relay && env -u MAKEFLAGS -u MFLAGS cargo test -q --locked

test-page: frontend/node_modules/.installed
	$(call say,test: page)
	cd frontend && npm run --silent test

test-sdk: .venv-test/.server frontend/dist/.built
	$(call say,test: SDK$(comma) properties and packages)
	$(TEST_PY) -m pytest $(SECOND_CHANCE) $(SDK_TESTS)

test-server: .venv-test/.server frontend/dist/.built
	$(call say,test: server$(comma) workers$(comma) native module and contracts)
	$(TEST_PY) -m pytest $(SECOND_CHANCE) tests/unit tests/contract $(addprefix --ignore=,$(SDK_TESTS))

# On services of their own, and so side by side: much of their time is spent waiting for leases, nodes and browsers.
test-platform: .venv-test/.server frontend/dist/.built build/.services
	$(call say,test: whole deployments and their workers)
	$(TEST_PY) -m pytest $(SECOND_CHANCE) $(PLATFORM_TESTS)

test-ring: .venv-test/.server build/.services
	$(call say,test: engine on a ring of three nodes)
	$(TEST_PY) -m pytest $(SECOND_CHANCE) $(RING_TESTS)

test-stores: .venv-test/.server build/.services
	$(call say,test: stores$(comma) catalog$(comma) processes and the harness)
	$(TEST_PY) -m pytest $(SECOND_CHANCE) tests/integration tests/fault $(addprefix --ignore=,$(RING_TESTS) $(PLATFORM_TESTS))
