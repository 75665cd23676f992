# Two commands for a newcomer: `make demo` and `make test`. Both set up all they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := 2.13.0

.PHONY: demo test fast check format bench screenshots clean

# torch comes first and by exact version: whatever is installed later then finds it there and downloads no other build.
$(VENV)/ready: pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check "torch==$(TORCH)" numpy
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

demo: $(VENV)/ready
	$(BIN)/ranktop demo

test: $(VENV)/ready
	$(BIN)/python -m pytest

# Everything but the real torchrun jobs: seconds instead of minutes.
fast: $(VENV)/ready
	$(BIN)/python -m pytest -m "not torch"

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/ready
	$(BIN)/python -m bench

screenshots: $(VENV)/ready
	$(BIN)/python screenshots/make.py --demo

clean:
	rm -rf $(VENV) build dist *.egg-info
