# cordata. `make help` lists the targets.
# Needs Debian 12 or newer; missing packages are installed with apt (as root, or by sudo).

# Port and directory of `make run`.
PORT ?= 8080
STATE ?= .run
# Any Python from 3.11 on.
PYTHON ?= python3
# Arguments for pytest: make test PYTEST="-k kill -x"
PYTEST ?=
# Seconds of each part of `make fuzz`.
FUZZ ?= 60
# For `make soak`: seconds of steady load, and number of calls while processes are killed; 0: none.
SOAK ?= 300
CHAOS ?= 20000
# Words of the measurements wanted: make bench BENCH="poll growth health"
BENCH ?=
# Another checkout, which `make versus` and the growth bench measure beside this one.
OTHER ?=

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help run test test-all test-debian test-pgbouncer test-venv test-smoke test-alone oracle test-system lint reference deb bench versus fuzz soak boot clean clean-cache

build := packaging/build
# The tests that use the official AlpineBits material if it is available.
alone = $(shell grep -rlE 'alpinebits import .*material|alpinebits\.recorded' tests/integration --include='test_*.py')
# One of everything: commands, worker and primary, HTTP, events, jobs, mail, alerts, pool, hub, AlpineBits.
smoke = tests/contract tests/unit/style tests/integration/testing tests/integration/mail tests/integration/alert \
	$(addprefix tests/integration/,cli/test_commands.py cli/test_job.py server/test_server.py server/test_pool.py \
	http/test_server.py hub/test_http.py hub/test_cli.py report/test_report.py redis/test_worker.py trace/test_otel.py \
	alpinebits_client/test_check.py::test_nothing_fails_against_the_hub status/test_browser.py documents/test_from_celery.py)
# More than there are processors: most tests spend their time waiting for a server or a process. The
# longest part has the most, so that it ends with the others.
parallel := -n 6 --dist worksteal
parallel_smoke := -n 2 --dist worksteal
# A module has its host to itself.
parallel_system := -n 2 --dist loadfile
# Extras of the environment for development; that of `make run` has none.
extras := test lint bench
# Prefix for commands that run with low priority.
low :=
# What `make test` leaves to `make test-all`: PgBouncer has tests of its own, and each contract runs without it.
few :=
# Of the examples of Hypothesis `make test` looks at a part, always the same ones.
part_of_examples := 0.3
# Hosts, the Debian 13 tree and its namespaces need root; the cache stays that of the caller.
ifeq ($(shell id -u),0)
root :=
else
root := sudo -n --preserve-env=HOME,XDG_CACHE_HOME,CORDATA_CACHE,CORDATA_SHARED,CI,EXAMPLES,PYTHON
endif
export PYTHON PYTHONDONTWRITEBYTECODE = 1
# With bytecode, as installed: otherwise each process compiles all that it imports at each start.
run bench versus test-venv test-smoke: export PYTHONDONTWRITEBYTECODE =

help: ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

run: ## The hub with a demo hotel on 127.0.0.1 (PORT=8080 STATE=.run); Ctrl-C stops it
	@$(build)/need python venv run && venv=$$($(build)/venv) && PYTHONPATH=daemon exec "$$venv/bin/python" packaging/run.py "$(PORT)" "$(STATE)"

# Requirements are installed first, since the parts must not install at the same time. The parts spend much
# of their time waiting, so all run at once, and continue when one fails; the output of each is printed when
# it ends. The tests of hosts assert how soon a service is back, so the other parts have a lower priority.
test: ## Lint, all tests on Debian 13's Python, a part of them on this one, the package in booted hosts
	@$(build)/need venv tree lint test && $(build)/venv $(extras) >/dev/null && $(root) $(build)/tree >/dev/null
	@echo "lint, test-debian, test-smoke and test-system run at once; each is shown when it ends" >&2
	@$(MAKE) -k -j3 --output-sync=target low="nice -n 10" few="-k 'not (contract and pgbouncer)'" \
		EXAMPLES=$(part_of_examples) test-system test-debian lint test-smoke

test-all: test test-venv test-pgbouncer test-alone oracle soak ## The same, all tests on this Python, too, the whole oracle, long chaos

test-debian: ## Unit, contract and integration tests on Debian 13's Python, which the package runs on
	@$(build)/need venv tree && venv=$$($(build)/venv $(extras)) && \
		$(root) $(low) "$$venv/bin/python" -B -m tests.host.suite --durations=10 $(parallel) $(few) $(PYTEST)

test-pgbouncer: ## The contracts of the store behind PgBouncer, on Debian 13's Python
	@$(MAKE) test-debian PYTEST="tests/contract -k pgbouncer"

test-venv: ## The same in a virtual environment
	@$(build)/need venv test && venv=$$($(build)/venv $(extras)) && \
		"$$venv/bin/python" -m pytest -q -p no:cacheprovider --durations=10 $(parallel) tests/unit tests/contract tests/integration tests/oracle $(PYTEST)

# The oldest supported Python is Debian 12's. Most tests need not run again there: mypy and ruff find code
# that needs a newer one. PgBouncer behaves the same on each: test-debian has its tests.
test-smoke: ## Contract tests and one test of everything else, in a virtual environment
	@$(build)/need venv test && venv=$$($(build)/venv $(extras)) && \
		$(low) "$$venv/bin/python" -m pytest -q -p no:cacheprovider $(parallel_smoke) -k 'not pgbouncer' $(smoke) $(PYTEST)

# In a clone without ../shared, the tests that use it must pass, too.
test-alone: ## The tests of AlpineBits without the official schemas and samples in ../shared
	@$(build)/need venv test && venv=$$($(build)/venv $(extras)) && \
		CORDATA_SHARED=none "$$venv/bin/python" -m pytest -q -p no:cacheprovider $(parallel) $(alone) $(PYTEST)

# `make test` runs four chapters of the forty.
oracle: ## All recorded answers of the hub, on both stores
	@$(build)/need venv test && venv=$$($(build)/venv $(extras)) && \
		ORACLE=all "$$venv/bin/python" -m pytest -q -p no:cacheprovider $(parallel) tests/oracle $(PYTEST)

test-system: ## The package in booted Debian 13 hosts
	@$(build)/need venv tree && venv=$$($(build)/venv $(extras)) && \
		$(root) "$$venv/bin/python" -B -m pytest -q -p no:cacheprovider --durations=10 $(parallel_system) tests/system $(PYTEST)

lint: ## ruff, mypy, import-linter, shellcheck; systemd-analyze and lintian in Debian 13
	@$(build)/need venv tree lint && venv=$$($(build)/venv $(extras)) && $(low) $(build)/lint "$$venv/bin" && \
		$(root) $(build)/deb dist >/dev/null && \
		$(root) env OUT="$$PWD/dist" $(build)/in-tree sh /src/packaging/build/lint-inside

reference: ## Write the commands and settings into docs/reference/
	@$(build)/need venv && venv=$$($(build)/venv $(extras)) && \
		PYTHONPATH=daemon "$$venv/bin/python" packaging/man/pages.py --docs docs/reference

deb: ## The Debian packages cordata and alpinehub, into dist/
	@$(build)/need tree && $(root) $(build)/deb dist

bench: ## Throughput, latency, memory and idle cost beside others (BENCH="poll growth health" for a part, OTHER=../old)
	@$(build)/need bench test tree && venv=$$($(build)/venv $(extras)) && $(root) $(build)/tree >/dev/null && \
		OTHER=$(OTHER) $(build)/bench "$$venv/bin/python" $(BENCH)

versus: ## Benchmarks of this checkout and another, alternating (OTHER=../old BENCH="webhook-sqlite hub")
	@$(build)/need bench test tree && python=$$($(root) $(build)/tree-python) && \
		PYTHONPATH=daemon:. "$$python" -m tests.bench.versus $(OTHER) $(BENCH)

fuzz: ## Fuzz the hub's rules, FUZZ=60 seconds each; with atheris if it can be installed
	@$(build)/need venv test && venv=$$($(build)/venv $(extras)) && \
		{ "$$venv/bin/pip" install -q --only-binary :all: atheris || true; } && \
		export PYTHONPATH=daemon:. && "$$venv/bin/python" -m tests.bench.hub_fuzz $(FUZZ)

soak: ## The pool's memory over SOAK=300 seconds; CHAOS=20000 calls while its processes are killed
	@$(build)/need venv test && venv=$$($(build)/venv $(extras)) && export PYTHONPATH=daemon:. && \
		{ [ $(SOAK) = 0 ] || "$$venv/bin/python" -m tests.bench.pool_soak $(SOAK); } && \
		{ [ $(CHAOS) = 0 ] || "$$venv/bin/python" -m tests.bench.pool_chaos $(CHAOS); }

boot: ## The packages in a throw-away Debian 13 host, with a shell
	@$(build)/need tree && $(root) $(build)/deb dist >/dev/null && $(root) $(PYTHON) -B -m tests.host.boot dist

clean: ## Remove what `make` left in the checkout
	rm -rf dist .run .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

clean-cache: ## Remove the Debian 13 tree and the virtual environments, too
	$(root) rm -rf --one-file-system "$${CORDATA_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/cordata}"
