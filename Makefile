# Needs Python 3.11 or later and make; `make test` also takes Chromium and bubblewrap from apt where they are missing and it may.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
GPU_PYTHON ?= $(if $(wildcard $(VENV)/.installed-test),$(BIN)/python,python3)

.PHONY: demo test test-all test-gpu bench audit generate docs clean

demo: $(VENV)/.installed
	$(BIN)/rekindle demo --home .rekindle

# What every commit runs: static checks and the short tier of the tests; see tests/tiers.py.
test: $(VENV)/.installed-test
	.ci/programs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive service worker
	$(BIN)/lint-imports
	$(BIN)/python tests/generated_types.py
	DENO_NO_UPDATE_CHECK=1 $(BIN)/deno check --quiet --no-remote --config tests/deno.json service/rekindle_service/web/static
	$(BIN)/python -m compileall -q service worker  # else every process compiles them where none may write the result
	$(PYTEST) -n 3 --dist loadfile -m 'not long'

# The long tier as well; the tests on Slurm run by themselves, since their hosts change the network.
test-all: test
	$(PYTEST) -n 3 --dist loadfile -m long --rerun-alone --ignore tests/slurm
	$(PYTEST) tests/slurm --rerun-alone

# On a machine with GPUs, also a bare one: any Python that has torch and pytest. Prints a table, and writes it as JSON.
test-gpu:
	PYTHONPATH=service:worker $(GPU_PYTHON) -m pytest -c tests/gpu/pytest.ini tests/gpu --gpu-report build/gpu.json

# Compared with other tools, on a machine that does nothing else, in about an hour: docs/bench.json, its table and its picture.
bench: $(VENV)/.installed-test
	$(BIN)/python tests/bench/compare_tools.py

# Known vulnerabilities of the versions in constraints.txt; asks PyPI.
audit: $(VENV)/.installed-test
	$(PIP) install --quiet pip-audit
	$(BIN)/pip-audit --no-deps --disable-pip --requirement constraints.txt

# What is generated from the code: the pages of docs/reference.
generate: $(VENV)/.installed-test
	$(BIN)/python tests/generated_troubleshooting.py
	$(BIN)/python tests/generated_reference.py

# The site of the documentation in build/site; a link to no page or heading is an error.
docs: $(VENV)/.installed-test
	$(BIN)/python tests/docs_site.py

# The stamps make a second run install nothing, until what is to be installed changes.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --editable '.[recipes]' --constraint constraints.txt
	touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --editable '.[recipes,test]' --constraint constraints.txt
	touch $(VENV)/.installed $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "rekindle needs Python 3.11 or later; $(PYTHON) is older. Name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' || { \
	  echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Leaves .rekindle alone: jobs may be running in it.
clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find service worker tests -name __pycache__ -type d -prune -exec rm -rf {} +
