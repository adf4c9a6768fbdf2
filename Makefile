# make help lists the targets. All of them but lock need nothing but a Python 3.11, 3.12 or 3.13 (the last one with a C
# compiler, or redis-server on PATH: there is no wheel of the embedded Redis for it).
# make setup PYTHON=/path/to/python3.12 picks the interpreter.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup system demo test long chaos mutate measure lint types bench lock clean

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# Named after what it stands for: another lock file, or a moved checkout (a venv holds absolute paths), is another stamp.
STAMP := .venv/.installed-$(shell { cat requirements.lock; pwd; } | cksum | tr ' ' '-')

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

setup: ## make .venv with exactly what requirements.lock says; nothing to do if it is there
	@set -eu; \
	if [ -f "$(STAMP)" ] && { [ -z "$(PYTHON)" ] || [ "$$("$(PYTHON)" -V)" = "$$($(BIN)/python -V)" ]; }; then exit 0; fi; \
	for candidate in "$(PYTHON)" python3.12 python3.11 python3 python3.13; do \
		if [ -n "$$candidate" ] && version=$$("$$candidate" -c 'import ensurepip, sys, venv; \
			assert (3, 11) <= sys.version_info[:2] <= (3, 13); print(*sys.version_info[:2], sep=".")' 2>/dev/null); \
		then found=$$candidate; break; fi; \
		if [ -n "$(PYTHON)" ]; then break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
		echo "expected a Python 3.11, 3.12 or 3.13 with its venv module, found none on PATH (or not as PYTHON=);" \
			"install one (Debian: python3-venv), or name it: make setup PYTHON=/path/to/python3.12" >&2; \
		exit 1; \
	fi; \
	echo "making .venv with Python $$version from requirements.lock (a minute or so, the first time)"; \
	"$$found" -m venv --clear .venv; \
	$(PIP) install --quiet --require-hashes --requirement requirements.lock; \
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .; \
	touch "$(STAMP)"

system: ## Debian packages that some tests need (tests/system-packages.txt); those tests skip without them. Wants root
	@set -eu; names=$$(sed 's/[[:space:]]*#.*//; /^$$/d' tests/system-packages.txt); missing=""; \
	for name in $$names; do dpkg-query -W -f='$${Status}' "$$name" 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$name"; done; \
	if [ -n "$$missing" ]; then \
		echo "installing$$missing"; \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

demo: setup ## the whole product on embedded servers, with a verdict at the end
	@$(BIN)/bucketd demo

test: setup ## the whole test suite; make test ARGS="-k planner" runs a part
ifdef ARGS
	@$(BIN)/python -m pytest $(ARGS)
else
	@$(BIN)/python -m pytest -q -n 3 --dist worksteal -m "not alone and not quiet and not long"
	@$(BIN)/python -m pytest -q -m alone
endif

long: setup ## what takes too long for every run: each outage with each part away, edges of minutes, holds, a day of real schedules
	@$(BIN)/python -m pytest -q -n 2 -m long

mutate: setup ## takes away each guard of the product in a copy of it, and tells whether a test turns red; ARGS="--only early"
	@$(BIN)/python -m tests.mutate $(ARGS)

chaos: setup ## everything goes wrong for ten minutes, by a seed; make chaos SEED=7 MINUTES=5 plays a certain one
	@SEED="$(SEED)" MINUTES="$(MINUTES)" $(BIN)/python -m tests.chaos $(ARGS)

measure: setup ## lateness under light load and the cost of an idle node; wants a machine with nothing else to do
	@$(BIN)/python -m pytest -q -m quiet

lint: setup ## style
	@$(BIN)/ruff check .

types: setup ## mypy, strict
	@$(BIN)/mypy

bench: setup ## the headline figure; the last line is one JSON object
	@$(BIN)/python -m bench.end_to_end --json

lock: setup ## renew requirements.lock from pyproject.toml (this one needs the network, and installs uv)
	@$(BIN)/uv --version >/dev/null 2>&1 || $(PIP) install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --extra embedded --group dev --upgrade --quiet \
		--generate-hashes --no-emit-index-url --custom-compile-command "make lock" --output-file requirements.lock
	@set -eu; compile="$(BIN)/uv pip compile --universal --python-version 3.11 --constraint requirements.lock --quiet --generate-hashes --no-emit-index-url"; \
	$$compile --custom-compile-command "make lock" --output-file ops/locks/runtime.lock pyproject.toml; \
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' | \
		$$compile --custom-compile-command "make lock" --output-file ops/locks/build.lock -

clean: ## remove .venv, caches and builds; not .bucketd/, the data of `bucketd up`
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
