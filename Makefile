# A fresh machine needs Python 3.11 or newer, git and make. Every target makes the environment it needs;
# a stamp for each extra makes the second call instant.

PYTHON ?= python3
# Test processes. Few: the library's own threads fill the cores.
WORKERS ?= 2

BIN = .venv/bin
BENCH = .venv-bench/bin

.PHONY: demo test lint bench clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

demo: .venv/made-progress
	$(BIN)/python examples/demo.py

test: .venv/made-test
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

lint: .venv/made-lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# ThunderSVM takes its number of threads from OMP_NUM_THREADS alone.
bench: .venv-bench/made
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-$$($(BENCH)/python -c 'import joblib; print(joblib.cpu_count())')} \
		$(BENCH)/python -m benchmarks.run $(ARGS)

clean:
	rm -rf .venv .venv-bench build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/made-%: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet --editable '.[$*]'
	@touch $@

# Peers come one by one: what this platform cannot install, the bench reports as missing.
.venv-bench/made: pyproject.toml | $(BENCH)/pip
	$(BENCH)/pip install --quiet --editable .
	@$(BENCH)/python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
		print(*project['optional-dependencies']['bench'], sep='\n')" | while read -r peer; do \
		$(BENCH)/pip install --quiet "$$peer" || echo "$$peer cannot be installed here: the bench goes on without it."; \
	done
	@touch $@

$(BIN)/pip $(BENCH)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "widemargin needs Python 3.11 or newer, and '$(PYTHON)' is not: name one, as in PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(@:/bin/pip=)
