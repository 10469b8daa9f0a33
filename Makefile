# Two commands from a fresh machine with Python 3.11+, make and pip:
#   make run     set up, then play the paper's experiment and draw its figure
#   make test    set up, then lint, types, import rules and tests
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test bench clean

run: .venv/ready
	@$(BIN)/python -m windvane reproduce

test: .venv/ready
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python -c "from importlinter.cli import lint_imports_command as lint; lint()" --no-cache
	$(BIN)/python -m pytest -n 2

bench: .venv/ready
	$(BIN)/python benchmarks/online.py
	$(BIN)/python benchmarks/many_arms.py
	$(BIN)/python benchmarks/figure.py --whole

# Made again when the dependencies change or the checkout has moved.
.venv/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "windvane needs Python 3.11 or later: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .hypothesis out
