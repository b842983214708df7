# `make`: install, run the chain, print what every stage was worth. `make test`: check everything.
PYTHON ?= python3
BIN := .venv/bin
FAISS := $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)

.PHONY: all install test

all: install
	PATH="$(CURDIR)/$(BIN):$$PATH" dvc repro
	$(BIN)/python -m stages table metrics/evaluation/corpus metrics/significance.json

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$(FAISS),quickstart,test]"
	touch $@

test: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest
