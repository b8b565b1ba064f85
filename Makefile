# Two commands do everything on a fresh machine with Python 3.11+ and make: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Modules are compiled at their first import: far fewer than are installed. Without the result on disk, every process
# would compile them again, which triples the time that Spark's Python processes take to start.
unexport PYTHONDONTWRITEBYTECODE
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
# Tests that share something slow to start run in one process; tests/conftest.py has the groups and their order.
# Processes that run tests: one more than a small machine has cores, because tests wait a third of the time, for other
# processes and for the disk.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help run test suite test-s3a soak install check format java chromium postgresql versitygw clean

help:  ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

run: install  ## Set up, then start roamcast with a small live scenario and print the page's address
	$(BIN)/roamcast up

test: $(VENV)/.dev java chromium postgresql versitygw $(VENV)/spark.jsa  ## Set up, then run all checks and the whole test suite
	@$(MAKE) --no-print-directory --jobs=2 check suite || { echo 'make test has failed, in "make check" (further up) or in pytest' >&2; exit 1; }

suite:  # of a machine that is set up
	$(PYTEST)

test-s3a: $(VENV)/.dev java versitygw  ## Test Spark's own access to S3; downloads 674 MB of jars, once
	ROAMCAST_TEST_S3A=1 $(BIN)/python -m pytest tests/e2e/test_s3a.py

soak: $(VENV)/.dev java chromium postgresql versitygw $(VENV)/spark.jsa  ## Run the suite with twenty times as many generated examples; takes long
	$(PYTEST) --hypothesis-profile soak --timeout 0

install: $(VENV)/.run java  ## Set up only; .venv/bin/roamcast works afterwards

check: $(VENV)/.dev  ## Lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## Format the code and fix what the linter can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

java:
	@scripts/need-java

chromium:
	@scripts/need-chromium

postgresql:
	@scripts/need-postgresql

versitygw: | $(BIN)/pip
	@scripts/need-versitygw

clean:  ## Remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(BIN)/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "roamcast needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/pip
	$(PIP) --editable '.[all]'
	$(BIN)/roamcast compile
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/pip
	$(PIP) --editable '.[dev]'
	$(BIN)/roamcast compile
	$(BIN)/python tests/support/compile_simulation.py
	@touch $(VENV)/.run $@

# Java classes of Spark, for the many JVMs that tests start: each takes 2.5 s of CPU time less.
$(VENV)/spark.jsa: $(VENV)/.dev | java
	$(BIN)/python tests/support/spark_archive.py $@
