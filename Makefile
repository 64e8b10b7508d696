# All targets for development; `make` alone lists them.
# Needs Python 3.11 or newer with venv, and make. The set-up installs PostgreSQL.

PY    ?= python3
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.stamp

# pip uses the registry that the machine is configured for. The caller's PYTHONPATH must not have an effect.
unexport PYTHONPATH
unexport PYTHONHOME
# Thousands of processes in the tests would otherwise compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup check format test test-fast proofs chaos bench bench-guard demo docs docs-live schema lock matrix release ci clean

help: ## list all targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv and install the dependencies (under a second if nothing changed)

$(STAMP): requirements-dev.txt pyproject.toml
	@$(PY) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Rota needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; choose another one: make PY=python3.12 ...")'
	@$(PY) -c 'import venv, ensurepip' 2>/dev/null || { echo "This Python has no venv module. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@echo "setting up $(VENV) (once, about half a minute)"
	@$(PY) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# On a busy machine mypy's parallel mode may not start (exit code 2): then one process checks all.
check: setup ## lint, types, layers, plain words, lock file; collect all tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pytest --collect-only -qq tests >/tmp/rota-tests.$$$$ 2>&1 & collecting=$$!; \
	$(BIN)/mypy -n 2; types=$$?; [ $$types -ne 2 ] || { $(BIN)/mypy; types=$$?; }; wait $$collecting || { cat /tmp/rota-tests.$$$$; types=1; }; \
	rm -f /tmp/rota-tests.$$$$; exit $$types
	@$(BIN)/lint-imports --no-logo >/tmp/rota-layers.$$$$ 2>&1 && rm -f /tmp/rota-layers.$$$$ || { cat /tmp/rota-layers.$$$$; rm -f /tmp/rota-layers.$$$$; exit 1; }
	@$(BIN)/python tools/check_tree.py
	@$(BIN)/python tools/check_prose.py

format: setup ## format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

test: setup ## all tests, on a private PostgreSQL; all phases run, also after a failure
	@failed=; run() { phase=$$1; shift; $(BIN)/pytest "$$@" $(PYTEST_ARGS) || failed="$$failed $$phase"; }; \
	run parallel -n 4 -m "not serial" tests/unit tests/store tests/engine; \
	run process -n 3 -m "not serial" tests/process; \
	run browser -n 2 --dist loadfile tests/browser; \
	run serial -m serial $$(grep -rl --include="test_*.py" mark.serial tests); \
	[ -z "$$failed" ] || { echo "make test: failures in the phase(s):$$failed (see above)"; exit 1; }

test-fast: setup ## tests without the slow ones
	@$(BIN)/pytest -m "not slow and not serial" tests/unit tests/store tests/engine tests/process $(PYTEST_ARGS)

# Modules with a long form import support.scale. Proofs of these folders start processes and measure time.
LONG_FORMS    := grep -rl --include="test_*.py" support.scale
SERIAL_PROOFS := $(addprefix tests/proofs/,chaos cluster examples pooler web)

proofs: setup ## long forms of the tests: a million rows, every await, every mutant, minutes of faults
	@ROTA_TEST_LONG=1 $(BIN)/pytest -n 2 tests/proofs $(addprefix --ignore=,$(SERIAL_PROOFS)) $$($(LONG_FORMS) tests/unit tests/store tests/engine)
	@ROTA_TEST_LONG=1 $(BIN)/pytest -s $(SERIAL_PROOFS) $$($(LONG_FORMS) tests/process)

SECONDS ?= 2100
chaos: setup ## break workers, servers and connections for SECONDS=2100; check that nothing is lost or done twice
	@$(BIN)/python -m tests.chaos --seconds $(SECONDS) $(CHAOS_ARGS)

bench: setup ## compare Rota with its peers; a full run rewrites benchmarks/RESULTS.md
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-guard: setup ## cost per job of this tree against BASE=commit; fails if it rose
	@$(BIN)/python -m benchmarks.guard $(BASE) $(GUARD_ARGS)

demo: setup ## workers, a dashboard and an embedded PostgreSQL for a minute; one worker is killed
	@$(BIN)/rota demo $(DEMO_ARGS)

docs: setup ## build the documentation into site/
	@$(BIN)/python -m tools.reference
	@$(BIN)/zensical build --clean --strict

docs-live: setup ## serve the documentation at http://localhost:8000 while you write
	@$(BIN)/python -m tools.reference
	@$(BIN)/zensical serve

schema: setup ## rewrite src/rota/store/schema.sql from the migrations
	@$(BIN)/python tools/dump_schema.py

lock: setup ## rewrite requirements-dev.txt (the only target that needs uv)
	@$(BIN)/python tools/lock.py

matrix: ## quick tests on every Python (3.11 to 3.14) and PostgreSQL of this machine
	@$(PY) tools/matrix.py $(MATRIX_ARGS)

release: setup ## check, cut the changelog, build and tag VERSION=1.2.3; publishing stays with a maintainer
	@$(BIN)/python -m tools.release $(VERSION)

ci: check test ## all that must pass before a change lands

clean: ## remove .venv and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
