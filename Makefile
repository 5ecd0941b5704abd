# Posthouse: every command does its own set-up. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test unit check format bench clean

help: ## list the commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Posthouse needs Python 3.11 or later; run make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY) ## two services, three tenants, one poison event, one killed worker: under a minute
	$(BIN)/posthouse demo

test: $(READY) ## every test: unit, conformance, integration, faults, documentation
	$(BIN)/python -m pytest

unit: $(READY) ## the unit tests alone, under a minute
	$(BIN)/python -m pytest tests/unit

check: $(READY) ## format, lint, strict types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## rewrite the files in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## ratios to the physical limit, measured in one run
	$(BIN)/python -m benchmarks

clean: ## remove everything that make made
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
