# The one entry: every target makes its own environment in .venv/ first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
# Arguments of test-kubernetes, faults, soak and measure, e.g. ARGS='--only contract'
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: pictures help setup demo test test-kubernetes lint measure bench faults fuzz soak clean lock

help: ## show the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Refloat needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --require-hashes --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(STAMP) ## make the environment in .venv/

demo: setup ## run the main job: a cluster on this machine, live
	@$(BIN)/refloat demo

lint: setup ## lint, format, types and import contracts
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

measure: setup ## the code measures beside their targets; ARGS='--tests' for the tests
	@$(BIN)/python -m tools.measure $(ARGS)

# One more than two processors: some tests wait for processes, and begin first.
test: JOBS ?= 3
test: lint ## everything: lint, types, contracts, all tests
	@$(BIN)/python -m tests.e2e.kubectl
	@$(BIN)/pytest -n $(JOBS) --dist worksteal

test-kubernetes: JOBS ?= 2
test-kubernetes: setup ## the suites on a real Kubernetes, which is built once
	@JOBS=$(JOBS) $(BIN)/python -m tests.kubernetes $(ARGS)

faults: setup ## real processes under faults, all scenarios; SEED=n repeats a run
	@$(BIN)/python -m tests.faults $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: setup ## random faults without end; SEED=n repeats a run
	@$(BIN)/python -m tests.faults --soak $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: setup ## send malformed requests until something breaks; SEED=n repeats a run
	@$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED))

bench: setup ## the benchmarks
	@$(BIN)/refloat bench

pictures: setup ## draw the pictures of the documents again
	@$(BIN)/python -m tools.pictures.architecture docs/architecture.txt docs/architecture.svg
	@$(BIN)/python -m tools.pictures.demo docs/demo.svg

lock: setup ## pin the dependencies anew
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --generate-hashes \
	  --no-header --no-annotate --upgrade --output-file requirements.lock

clean: ## remove everything that the other targets made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache src/*.egg-info
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +
