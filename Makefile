# Two targets do all the set-up: `make demo` serves a model on this machine, `make test` passes the tests.
PYTHON ?= python3
VENV ?= .venv
# For pip, such as an index with CPU builds of torch.
PIP_ARGS ?=
# Files of tests at a time: many wait more than they compute. 0 runs all in one process.
JOBS ?= 2
BIN := $(VENV)/bin

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "setting up $(VENV): about 2 GB, a few minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[runtime,mooncake,nixl,ascend,dev]'
	touch $@

.PHONY: setup demo test lint types check clean
setup: $(VENV)/.installed

demo: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/01-laptop/run.sh

# As root on Debian it installs the packages that tests start programs of.
test: setup
	tests/testbed/packages.sh
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/shellcheck .ci/run examples/*/*.sh examples/*/*.sbatch tests/testbed/*.sh tests/testbed/*/*.sh

types: setup
	$(BIN)/pyright

check: test lint types

clean:
	rm -rf $(VENV)
