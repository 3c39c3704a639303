# Every command of the project. Set-up (tools/setup) runs before a command that needs it and is quick
# when nothing changed. Recipes use relative paths only: the project's path may contain spaces.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The environment that set-up made: freshet, pytest, spark-submit and Java on PATH.
ENV = . "$${FRESHET_TOOLS:-./.freshet}/env"
UP = python -m freshet.orchestration.local

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Set up Java, the Python environment and Spark's packages (PYTHON=… names the interpreter)
	@tools/setup

.PHONY: demo
demo: setup ## Run the demo load through Airflow, from master data to validated facts
	@$(ENV) && $(UP) demo

.PHONY: up
up: setup ## Start Airflow with the DAGs of every load definition and leave it running
	@$(ENV) && $(UP) up

.PHONY: down
down: ## Stop Airflow completely
	@if [ -e "$${FRESHET_TOOLS:-./.freshet}/env" ]; then $(ENV) && $(UP) down; fi

.PHONY: test
test: setup ## Run all tests but the long ones
	@$(ENV) && pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow" $(ARGS)

.PHONY: faults
faults: setup ## Run the long kill tests
	@$(ENV) && pytest -m slow tests/faults $(ARGS)

.PHONY: bench
bench: setup ## Measure what the lookups add to a micro-batch
	@$(ENV) && python benchmarks/microbatch.py $(ARGS)

.PHONY: lint
lint: setup ## Check style, shell scripts and the import contracts
	@$(ENV)
	ruff check .
	ruff format --check .
	shellcheck -x tools/setup tools/compose .ci/run
	lint-imports --no-logo

.PHONY: types
types: setup ## Check types
	@$(ENV) && mypy

.PHONY: format
format: setup ## Put the code into the project's style
	@$(ENV)
	ruff check --fix-only .
	ruff format .

.PHONY: lock
lock: setup ## Write requirements.txt from pyproject.toml, keeping its pins (ARGS=--upgrade renews them)
	@$(ENV)
	uv pip compile -q --universal --python-version 3.11 --group dev --group deploy \
	    --custom-compile-command "make lock" $(ARGS) -o requirements.txt pyproject.toml

.PHONY: compose-check
compose-check: ## Check docker-compose.yaml with Docker's own parser
	@secrets=$$(grep -oE '[A-Z_]+:[?]' docker-compose.yaml | sort -u | sed 's/:?/=any/')
	env $$secrets tools/compose --env-file .env.example config --quiet

.PHONY: clean
clean: down ## Remove the environment and every cache; the data of the loads stays
	@tools="$${FRESHET_TOOLS:-.freshet}"
	rm -rf "$$tools/venv" "$$tools/ivy" "$$tools/classes.jsa" "$$tools/env" "$$tools/log" "$$tools/setup.lock"
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache include/*.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
