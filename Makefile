# Posthouse: every command does its own set-up. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .cache/peers
RESULTS := .cache/benchmarks

.DEFAULT_GOAL := help
.PHONY: help freeze demo demo-servers console quickstart test test-long unit quick room check dist format bench bench-postgres bench-peers bench-picture load clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(READY): pyproject.toml melmastoon/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Posthouse needs Python 3.11 or later; run make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' --editable ./melmastoon
	@$(BIN)/python -m compileall -q -j 0 src melmastoon/src
	@touch $@

demo: $(READY) ## a hotel platform of 22 services: bookings, failing vendors, killed processes; then everything is counted
	$(BIN)/posthouse demo

demo-servers: $(READY) ## the same platform on PostgreSQL and NATS, in real time, with a process killed every few seconds
	$(BIN)/python -m tests.kit.servers.house --bookings 40

console: $(READY) ## the same platform alive, with the console on it: open the address that it prints
	$(BIN)/posthouse hotel

quickstart: $(READY) ## two services, three tenants, one poison event, one killed worker: under a minute
	$(BIN)/posthouse quickstart

test: $(READY) ## every test: unit, conformance, integration, faults, documentation; in three processes
	$(BIN)/python -m tests

test-long: $(READY) ## every test, with the enumerations and storms that take hours taken whole
	POSTHOUSE_LONG=3600 $(BIN)/python -m tests

unit: $(READY) ## the unit tests alone
	$(BIN)/python -m pytest tests/unit

quick: $(READY) ## an answer in two minutes: unit tests that are not slow, and the contracts on what needs no server
	$(BIN)/python -m tests quick

NAME = $(notdir $(R))
ROOM = $(sort $(wildcard tests/unit/$(R) tests/unit/$(patsubst ./%,%,$(dir $(R)))test_$(NAME)*.py tests/*/test_$(NAME)*.py tests/*/test_*_$(NAME).py tests/integration/$(NAME)))
room: $(READY) ## the tests of one room: make room R=brokers/nats
	@test -n "$(R)" -a -n "$(ROOM)" || { echo "no tests of a room '$(R)': say one of src/posthouse, as in make room R=brokers/nats" >&2; exit 2; }
	$(BIN)/python -m pytest $(ROOM)

check: $(READY) ## format, lint, strict types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/lint-imports --no-cache --config melmastoon/pyproject.toml

dist: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
dist: $(READY) ## sdist and wheel of both distributions into dist/, checked as an index checks them; constraints, SBOM, checksums
	rm -rf dist
	for each in . melmastoon; do $(BIN)/python -m build --no-isolation --outdir dist $$each || exit; done
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python -m release dist

freeze: $(READY) ## write what Melmastoon's services say into melmastoon/event-schemas/, to be committed
	$(BIN)/posthouse catalog freeze --prune --dir melmastoon/event-schemas $$($(BIN)/python -c 'from melmastoon.platform import TARGETS; print(*TARGETS)')

format: $(READY) ## rewrite the files in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## ratios to the physical limit, embedded and on PostgreSQL, each measured in one run
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks postgres

bench-postgres: $(READY) ## measure on PostgreSQL and renew the table in docs/performance.md
	$(BIN)/python -m benchmarks postgres --write $(RESULTS)/postgres.json
	$(BIN)/python -m benchmarks.report docs/performance.md $(RESULTS)/postgres.json

bench-peers: $(READY) $(PEERS)/.ready ## measure other libraries beside ours and renew their table
	$(BIN)/python -m benchmarks peers --python $(PEERS)/bin/python --write $(RESULTS)/peers.json
	$(BIN)/python -m benchmarks.report docs/performance.md $(RESULTS)/peers.json

bench-picture: $(READY) ## measure latency over load and draw docs/performance.png
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[picture]'
	$(BIN)/python -m benchmarks sweep --write $(RESULTS)/sweep.json
	$(BIN)/python -m benchmarks.picture $(RESULTS)/sweep.json docs/performance.png

load: $(READY) ## three times the base rate for minutes, then consumers that cannot keep up; renews its table and docs/load.png
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[picture]'
	$(BIN)/python -m benchmarks load --write $(RESULTS)/load.json --picture $(RESULTS)/load-run.json
	$(BIN)/python -m benchmarks.report docs/performance.md $(RESULTS)/load.json
	$(BIN)/python -m benchmarks.load.picture $(RESULTS)/load-run.json docs/load.png

$(PEERS)/.ready: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

clean: ## remove everything that make made
	rm -rf $(VENV) .cache dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
