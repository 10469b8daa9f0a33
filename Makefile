# Two commands from a fresh machine with Python 3.11+, make and pip:
#   make run        set up, then play the paper's experiment and draw its figure
#   make test       set up, then check style, types, imports, documentation and all tests
# For contributors:
#   make lint       style, types and import rules
#   make format     format the code and fix what the linter can fix
#   make test-fast  the tests that need no server, browser, long simulation or large grid (under a minute)
#   make docs       build the documentation into docs/_build/html, warnings are errors
#   make bench      the benchmarks whose tables are in the documentation
#   make faults     kills, failing disks, jumping clocks, hostile requests: hours (FAULTS="--minutes 30")
#   make build      the wheel and the source distribution, into dist
PYTHON ?= python3
EXTRAS ?= dev
BIN := .venv/bin

# Tests start many processes: Python keeps its bytecode, even if this shell says that it must not.
test all-tests test-fast: export PYTHONDONTWRITEBYTECODE =

.PHONY: run test all-tests test-fast lint format docs bench faults build clean

run: .venv/ready
	@$(BIN)/python -m windvane reproduce

# The linters run beside the tests, and the whole fails if one of them fails. A test builds the documentation.
test: .venv/ready
	@$(MAKE) --no-print-directory -j 2 lint all-tests

all-tests: .venv/ready
	$(BIN)/python -m pytest -n 3 --dist worksteal

test-fast: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

lint: .venv/ready
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python -c "from importlinter.cli import lint_imports_command as lint; lint()" --no-cache

format: .venv/ready
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

docs: .venv/ready
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs docs/_build/html

bench: .venv/ready
	$(BIN)/python benchmarks/first_use.py
	$(BIN)/python benchmarks/online.py
	$(BIN)/python benchmarks/many_arms.py
	$(BIN)/python benchmarks/figure.py --whole
	$(BIN)/python benchmarks/service.py
	$(BIN)/python benchmarks/scaling.py

faults: .venv/ready
	$(BIN)/python -m faults $(FAULTS)

build: .venv/ready
	$(BIN)/python -m build --no-isolation

# Made again if the dependencies change or the checkout has moved. The newest pip finds the versions
# of all packages in a third of the time that some older ones take.
.venv/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "windvane needs Python 3.11 or later: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .hypothesis out build dist docs/_build
