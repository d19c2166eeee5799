# Two commands set everything up by themselves on a machine that has python3 (3.11 or newer) and make:
#   make compare   train GPT-2 with eight attention mechanisms and print what each costs
#   make test      run every check and every test
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=

.PHONY: compare test lint bench docs clean

compare: $(VENV)/.installed
	$(BIN)/wattention compare $(ARGS)

test: $(VENV)/.tested lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

lint: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.tested
	for script in $(filter-out benchmarks/results.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$script || exit 1; done

docs: $(VENV)/.tested
	$(BIN)/python docs/generate.py

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "wattention needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# torch first and alone: its pinned version decides between a CPU build and one of several gigabytes
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[energy]'
	touch $@

$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[energy,pebble]' --group test --group lint
	touch $@

clean:
	rm -rf $(VENV)
