# `make`: install, run the chain, print what every stage was worth. `make test`: check everything.
PYTHON ?= python3
BIN := .venv/bin
FAISS := $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)

# DVC lists every number of every metrics file; these are the ones that describe a stage, not a result
DETAIL := .*/|.*[.](difference|holm|p)$$|last[.]|speed|left_out[.]|shared_queries[.]|duplicate_|q(rels|ueries)[.]|dev[.]|steps$$|.*pieces$$|.*words$$|.*_share$$|passages$$|documents$$|titles$$|empty_

.PHONY: all install test experiments

all: install
	PATH="$(CURDIR)/$(BIN):$$PATH" dvc repro
	$(BIN)/python -m stages table metrics/evaluation/corpus metrics/significance.json

# one line an experiment: what was changed, and what it was worth
experiments: install
	$(BIN)/dvc exp show --no-pager --only-changed --keep 'RR@10' --drop '$(DETAIL)'

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
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile
