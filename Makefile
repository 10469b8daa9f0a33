# Two commands from a fresh machine with Python 3.11+, make and pip (or uv, which is faster):
#   make run        install the lab, then play the paper's experiment and draw its figure
#   make test       install the rest, then check style, types, imports, documentation and tests
# For contributors:
#   make lint       style, types and import rules
#   make format     format the code and fix what the linter can fix
#   make test-fast  the tests that need no server, browser, long simulation or large grid (under a minute)
#   make test-all   make test, and the tests with npm, a container's steps and a whole run of faults
#   make docs       build the documentation into docs/_build/html, warnings are errors
#   make bench      the benchmarks whose tables are in the documentation
#   make faults     kills, failing disks, jumping clocks, hostile requests: hours (FAULTS="--minutes 30")
#   make build      the wheel and the source distribution, into dist
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest --dist worksteal
ifneq ($(shell command -v uv),)
INSTALL := uv pip install --quiet --python $(BIN)/python --editable
else
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable
endif

# Tests start many processes: Python keeps its bytecode, even if this shell says that it must not.
test test-all test-fast tests: export PYTHONDONTWRITEBYTECODE =

.PHONY: run test test-all test-fast tests lint format docs bench faults build clean

run: .venv/ready-lab
	@$(BIN)/python -m windvane reproduce

# The linters run beside the tests, and the whole fails if one of them fails. A test builds the documentation.
test: .venv/ready-dev
	@$(MAKE) --no-print-directory -j 2 lint tests SELECTED="not extra"

test-all: .venv/ready-dev
	@$(MAKE) --no-print-directory -j 2 lint tests SELECTED=""

tests: .venv/ready-dev
	$(PYTEST) -n 3 -m "$(SELECTED)"

test-fast: .venv/ready-dev
	$(PYTEST) -n 2 -m "not slow and not extra"

lint: .venv/ready-dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python -c "from importlinter.cli import lint_imports_command as lint; lint()" --no-cache

format: .venv/ready-dev
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

docs: .venv/ready-dev
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs docs/_build/html

bench: .venv/ready-dev
	$(BIN)/python benchmarks/first_use.py
	$(BIN)/python benchmarks/online.py
	$(BIN)/python benchmarks/many_arms.py
	$(BIN)/python benchmarks/figure.py --whole
	$(BIN)/python benchmarks/service.py
	$(BIN)/python benchmarks/scaling.py

faults: .venv/ready-dev
	$(BIN)/python -m faults $(FAULTS)

build: .venv/ready-dev
	$(BIN)/python -m build --no-isolation

# One environment, which grows: a stamp says what is installed, and is older than a changed pyproject.toml.
.venv/ready-lab: pyproject.toml | .venv/bin/python
	@$(INSTALL) '.[lab]'
	@touch $@

.venv/ready-dev: pyproject.toml | .venv/bin/python
	@$(INSTALL) '.[dev]'
	@touch $@ .venv/ready-lab

# The newest pip finds the versions of all packages in a third of the time that some older ones take.
.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "windvane needs Python 3.11 or later: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip

clean:
	rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .hypothesis out build dist docs/_build
