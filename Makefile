# The commands of this repository. `make` alone lists them.
# Everything lives in .venv; `make setup` makes it, and the others call it.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CPU_TORCH := https://download.pytorch.org/whl/cpu

.DEFAULT_GOAL := help
.PHONY: help setup docs extra quickstart test check bench bench-nanogcg lint format clean

help: ## List the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## Make the virtual environment and install the pinned requirements

# PyPI's torch for Linux carries CUDA. Without an NVIDIA driver, and unless pip's own indexes offer a CPU build,
# the CPU index of PyTorch is added. $(call install,FOLDER OF THE ENVIRONMENT,REQUIREMENTS)
define install
	test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	@torch=$$(grep -oE '^torch==[^ ]+' $(2)); extra=; \
	if [ "$$(uname -s)" = Linux ] && ! command -v nvidia-smi >/dev/null \
	   && ! $(1)/bin/pip install --dry-run --no-deps --quiet --report - $$torch 2>/dev/null | grep -qE '"version": "[^"]*\+cpu"|"install": \[\]'; \
	then extra="--extra-index-url $(CPU_TORCH)"; fi; \
	echo "$(1)/bin/pip install $$extra -r $(2)"; \
	$(1)/bin/pip install --quiet $$extra -r $(2)
endef

$(READY): requirements.txt pyproject.toml
	$(call install,$(VENV),requirements.txt)
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

docs: $(READY) ## Build the manual into docs/_build/html; a dead link is an error
	$(BIN)/pip install --quiet -r requirements-docs.txt
	$(BIN)/python -m sphinx -q -W --keep-going -E docs docs/_build/html
	@echo docs/_build/html/index.html

extra: $(READY) ## Install what only some need: requirements-extra.txt
	$(BIN)/pip install --quiet -r requirements-extra.txt

quickstart: $(READY) ## Train the demo family, scan the whole vocabulary, compare, and print the path of the page
	$(BIN)/pessimal experiment=quickstart/train
	$(BIN)/pessimal experiment=quickstart/scan
	$(BIN)/pessimal experiment=quickstart/compare
	$(BIN)/pessimal experiment=quickstart/report
	@printf '\nOpen the page above in a browser. Then try:\n  $(BIN)/pessimal scan model=auto model.path=ORG/NAME\n  $(BIN)/pessimal search model=plain-bpe-0 prompt=greatest search.length=2\n'

# Files side by side, each on one thread: the models are tiny, and two threads of one get in each other's way.
test: $(READY) ## Run the test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

check: quickstart ## Run the quickstart, then look whether its results are what was planted
	$(BIN)/python -m pytest -m quickstart

bench: $(READY) ## Measure speed, ratios side by side in one process
	$(BIN)/python experiments/speed/scan.py
	$(BIN)/python experiments/speed/search.py
	$(BIN)/python experiments/speed/threads.py
	$(BIN)/python experiments/speed/loop.py
	$(BIN)/python experiments/speed/compare.py 1
	$(BIN)/python experiments/speed/compare.py 3
	$(BIN)/python experiments/speed/compare.py quickstart
	$(BIN)/python experiments/speed/startup.py
	$(BIN)/python experiments/speed/gpu.py

bench-nanogcg: $(READY) ## Measure a search step beside the released nanoGCG, which gets an environment of its own
	$(call install,.venv-nanogcg,experiments/speed/nanogcg_requirements.txt)
	.venv-nanogcg/bin/python experiments/speed/nanogcg_yardstick.py $(BIN)/python

lint: $(READY) ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY) ## Put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the environment and everything that runs left behind
	rm -rf $(VENV) runs docs/_build .pytest_cache .ruff_cache
