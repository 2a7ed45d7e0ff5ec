# make demo    from a fresh clone to generated text; needs python >= 3.11, make, and the network for pip only
# make test    the test suite; then kernels under one other code path of the processor
# make quick   its inner loop, under a minute: what is marked slow or exhaustive is left to `make test`
# make test-all  `make test`, then the long suite; PART=paths|emulated|cluster|page|packaging|matrix|soak: a part of it
# make published  fetch two published models, 350 MB, into .published; tests with them are skipped without
# make lint    ruff and mypy; make format repairs what ruff can
# make docs    renew the parts of the documentation that are generated
# make bench   speed of this machine in some minutes; PEER=path/to/llama.cpp/build/bin measures both side by side
# make bench-full     all shapes and types, some hours; rows are kept, ARGS=--resume goes on; ARGS='--only "llama-1b pp512"'
# make bench-kernels  matrix products, attention and recurrent kernels alone, as shares of the machine's limits
# make bench-compare  REF=commit: what became faster or slower since
# make chart   draw the README's chart from benchmarks/results.jsonl

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The first of these that is new enough; `make PYTHON=...` chooses another.
FOUND := $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
PYTHON ?= $(FOUND)

# pytest rewrites the assertions of 300 files, which takes every one of its processes 7 s unless the result may be kept
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all quick published lint format docs bench bench-full bench-kernels bench-compare chart help clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \(make.*\)/\1/p' Makefile

demo: $(VENV)/.runtime
	$(BIN)/hybrid demo

test: $(VENV)/.dev
	$(BIN)/python tests/suite.py test

test-all: $(VENV)/.dev
	$(BIN)/python tests/suite.py all $(PART)

quick: $(VENV)/.dev
	$(BIN)/python tests/suite.py quick

published: $(VENV)/.dev
	$(BIN)/python tests/published_models.py

lint: $(VENV)/.dev $(VENV)/.typing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p hybrid

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev
	$(BIN)/python tests/generated_docs.py

bench: $(VENV)/.runtime
	$(BIN)/python benchmarks/compare.py $(if $(PEER),--peer $(PEER)) $(ARGS)

bench-full: $(VENV)/.runtime
	$(BIN)/python benchmarks/compare.py --set full --write $(if $(PEER),--peer $(PEER)) $(ARGS)

bench-kernels: $(VENV)/.runtime
	for kind in matmul attention recurrent; do $(BIN)/python benchmarks/kernels_$$kind.py || exit 1; done

bench-compare: $(VENV)/.runtime
	@test -n "$(REF)" || { echo "error: name the commit to compare with: make bench-compare REF=HEAD~1" >&2; exit 1; }
	$(BIN)/python benchmarks/commits.py $(REF) $(ARGS)

chart: $(VENV)/.runtime
	$(BIN)/python benchmarks/chart.py

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "error: no python >= 3.11 found. Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is not python >= 3.11. Name another: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "error: $(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: pyproject.toml | $(VENV)/.python
	$(PIP) install --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.python
	$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.runtime

# The checkout, seen by mypy under the names it is imported by: the modules and rooms of library are those of `hybrid` itself.
LIBRARY := $(wildcard library/*.py) library/py.typed $(patsubst %/__init__.py,%,$(wildcard library/*/__init__.py))
$(VENV)/.typing: Makefile $(LIBRARY) | $(VENV)/.python
	@rm -rf $(VENV)/typing
	@mkdir -p $(VENV)/typing/hybrid
	@for d in cli convert infer quant $(LIBRARY); do ln -sfn ../../../$$d $(VENV)/typing/hybrid/$${d##*/}; done
	@touch $@
