# Every command a newcomer, a developer or CI needs. The first two are the README's.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test check bench simulate chaos spark-chaos demo-failover clean

run: $(VENV)/.installed
	@exec $(BIN)/penstock serve --data-dir ./data

# JOBS processes share the tests; what breaks things under load has the machine to itself.
JOBS ?= 2
test: $(VENV)/.installed-dev check
	$(BIN)/python -m pytest $(if $(filter-out 1,$(JOBS)),-n $(JOBS) --no-loadscope-reorder) -m "not alone"
	$(BIN)/python -m pytest -m alone tests/integration tests/spark

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# How many histories (SEEDS=200) or for how long (SECONDS=600); the first seed is FIRST. FLEET=1 plays
# whole nodes with many groups.
SECONDS ?= 60
FIRST ?= 0
simulate: $(VENV)/.installed-dev
	$(BIN)/python -m tests.simulation $(if $(FLEET),--fleet) --first $(FIRST) $(if $(SEEDS),--seeds $(SEEDS),--seconds $(SECONDS))

# Real processes: for how long (SECONDS=3600), how many nodes (NODES=5), which faults (SEED=7).
NODES ?= 3
chaos: SECONDS = 120
chaos: LOAD = steady
chaos: $(VENV)/.installed-dev
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) --nodes $(NODES) --load $(LOAD) $(if $(SEED),--seed $(SEED))

# Drivers, executors and brokers are killed while Spark copies a topic.
spark-chaos: ROUNDS = 30
spark-chaos: $(VENV)/.installed-dev
	$(BIN)/python -m tests.spark_chaos --rounds $(ROUNDS) --nodes $(NODES) $(if $(SEED),--seed $(SEED))

# Three nodes, a steady stream, and the death of a leader, on screen.
demo-failover: $(VENV)/.installed
	@$(BIN)/python examples/failover.py

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Penstock needs Python 3.11 or newer; this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
