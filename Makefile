# make run: set-up and server in one. make test: set-up and the whole suite. Needs Python 3.11+; the tests also Node 20 and npm.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP = $(BIN)/pip install -qq --disable-pip-version-check
PAYRES_DATABASE ?= ./var/payres.db
PYTEST_WORKERS ?= 3
# The files of the tests are in memory where there are two gigabytes for them that programs can be run from: thousands of
# small databases are synced to the disk again and again.
MEMORY = $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 2000000 2>/dev/null \
	&& ! grep -q ' /dev/shm .*noexec' /proc/mounts && echo /dev/shm)
COMPILE = $(VENV)/lock/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q

.PHONY: help run test pythons guides torture simulate demo bench profile check format docs site lock pyz dist clean

help: ## Show what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

run: $(VENV)/.runtime ## Start the server on a file in ./var, with demo wallets on the first run
	@mkdir -p var
	@# Ctrl-C also reaches make and the shell: the shell waits for the server to stop, and then has nothing to complain of.
	@trap : INT; PAYRES_DATABASE="$(PAYRES_DATABASE)" $(BIN)/payres serve --demo

test: $(VENV)/.dev tests/interop/node_modules/.installed ## Run the whole test suite
	@# With their bytecode kept, the processes of the suite need not compile everything again. Without columns no traceback
	@# that a server logs parses its line, which in Python 3.11 can fail a test that parses on another thread.
	$(MEMORY:%=TMPDIR=% )PYTHONDONTWRITEBYTECODE= PYTHONNODEBUGRANGES=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder -p randomly --randomly-seed=1 -m "not machine" $(PYTEST_FLAGS)

pythons: $(VENV)/.dev ## The tests that depend most on the version of Python, under the other versions that are here
	$(MEMORY:%=TMPDIR=% )PYTHONDONTWRITEBYTECODE= PYTEST_WORKERS=$(PYTEST_WORKERS) $(BIN)/python -m tests.pythons

guides: $(VENV)/.dev ## Do what the documents for operators say, on a machine with systemd; needs root and systemd-nspawn
	$(MEMORY:%=TMPDIR=% )$(BIN)/python -m pytest -m machine tests/test_guides.py $(PYTEST_FLAGS)

torture: $(VENV)/.dev ## Kills, failing disks, lost networks, hostile input: hours of them, to the first violation
	$(BIN)/python -m tests.torture $(TORTURE)

simulate: $(VENV)/.dev ## A network of servers in one process, its time, faults and people from a seed: SEED= SEEDS= DAYS= PLANTED=1
	@$(BIN)/python -m tests.simulation$(if $(PLANTED),.planted $(filter-out 1,$(PLANTED))) $(SEED:%=--seed %) $(SEEDS:%=--seeds %) $(DAYS:%=--days %)

demo: $(VENV)/.runtime ## Narrate one payment from grant to receipt
	$(BIN)/payres demo

bench: $(VENV)/.dev ## Measure payres beside a bare Starlette app doing the same cryptography and storage, and against its goals
	$(BIN)/python -m benchmarks $(BENCH_FLAGS)

profile: $(VENV)/.dev ## Show where the processor time of a request goes, by room and by function
	$(BIN)/python -m benchmarks.profiler $(PROFILE_FLAGS)

check: $(VENV)/.dev ## Formatter, linter, type checker, dead code, the map of the rooms, what each table promises, planted faults
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/vulture
	$(BIN)/python -m pytest -q tests/test_architecture.py tests/test_schema_promises.py tests/simulation/test_planted.py

format: $(VENV)/.dev ## Let the formatter and linter fix what they can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev ## Write docs/reference again from the program
	$(BIN)/python -m docs.generate

site: $(VENV)/.dev ## Build the documents as a site in ./site
	@rm -rf .site && mkdir .site && cp --parents *.md LICENSE docs/*.md docs/*/*.md docs/llms.txt docs/examples/* benchmarks/*.md $$(find deploy -maxdepth 1 -type f) .site
	@# What is quiet is not strict: with --quiet, mkdocs counts no warnings.
	@said=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1) || { echo "$$said"; exit 1; }
	@# For programs that read: each page also as it was written.
	@cd .site && cp --parents *.md docs/*.md docs/*/*.md benchmarks/*.md ../site && sed 's#](#](docs/#; s#](docs/\.\./#](#' docs/llms.txt > ../site/llms.txt
	@echo "The site is in ./site: $(PYTHON) -m http.server -d site shows it."

lock: ## Write the lock files again from pyproject.toml
	$(PYTHON) -m venv $(VENV)/lock && $(VENV)/lock/bin/pip install -q uv
	$(COMPILE) pyproject.toml -o requirements.lock
	$(COMPILE) --group build -o requirements-build.lock
	$(COMPILE) pyproject.toml --group build --group dev --group docs -o requirements-dev.lock

pyz: $(VENV)/.pack ## Pack the program into one file, dist/payres.pyz
	@$(BIN)/python -m deploy.pyz

dist: $(VENV)/.dev ## Make a release in dist: wheel, sources, payres.pyz, bill of materials, SHA-256 sums
	@$(BIN)/python -m deploy.dist

clean: ## Remove what make has made, the database in ./var aside
	rm -rf $(VENV) dist site .site .benchmarks .mypy_cache .pytest_cache .ruff_cache .hypothesis tests/interop/node_modules

$(VENV)/.runtime: requirements.lock requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "payres needs Python 3.11 or later: set PYTHON=python3.12, say")'
	@echo "Making $(VENV)."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing what requirements.lock names into $(VENV). This takes a minute, and only the first time."
	@$(PIP) --require-hashes -r requirements.lock -r requirements-build.lock
	@echo "Installing payres."
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# Of the tools of the tests, shiv alone, which needs nothing more than the program does.
$(VENV)/.pack: requirements-dev.lock $(VENV)/.runtime
	@awk '/^[^ #]/ {is_shiv = /^shiv==/} is_shiv' requirements-dev.lock > $(VENV)/pack.lock
	@$(PIP) --no-deps --require-hashes -r $(VENV)/pack.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	@echo "Installing the tools of the tests, which requirements-dev.lock names."
	@$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

tests/interop/node_modules/.installed: tests/interop/package-lock.json
	@echo "Installing the official client for the tests, which tests/interop/package-lock.json names."
	@npm ci --prefix tests/interop --no-audit --no-fund --loglevel=error
	@touch $@
