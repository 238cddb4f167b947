# What to type: `make` alone lists the targets.
#
# Each environment is made once. A stamp file inside it, older than pyproject.toml, means that the
# dependencies may have changed and are installed again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
PEERS_SBX := .venv-peers-sbx
USE_STAMP := $(VENV)/.installed-to-use
DEVELOP_STAMP := $(VENV)/.installed-to-develop
PEERS_STAMP := $(PEERS)/.installed
PEERS_SBX_STAMP := $(PEERS_SBX)/.installed
PIP := -m pip --disable-pip-version-check --quiet

# Options for `trimtab train`, for pytest, and for the installation of torch among the peers.
ARGS ?=
PYTEST_ARGS ?=
TORCH_PIP_ARGS ?=
# The measurement that `make bench` runs: bench/$(BENCH).py
BENCH ?= fused_ppo

.DEFAULT_GOAL := help
.PHONY: help train test slow lint format peers bench clean
.DELETE_ON_ERROR:
# The stages of a target run in their order, whatever -j says.
.NOTPARALLEL:

help:
	@echo "make train    train PPO on CartPole-v1 (ARGS=\"--seed 1\" adds options)"
	@echo "make test     lint, format, types, layers, then every test that is not slow"
	@echo "make slow     the slow tests"
	@echo "make lint     the first four stages of make test"
	@echo "make format   rewrite the sources in the project's format"
	@echo "make peers    install the libraries that trimtab is compared with into $(PEERS) and $(PEERS_SBX)"
	@echo "make bench    measure trimtab against them (BENCH=learning for another measurement)"
	@echo "make clean    delete caches and build outputs; environments and runs/ stay"
	@echo
	@echo "Environments are made when they are needed, with $(PYTHON); PYTHON=python3.12 names another."

train: $(USE_STAMP)
	@$(BIN)/trimtab train CartPole-v1 $(ARGS)

# $(call stage,number,name,command,what a failure means)
define stage
	@echo "[$(1)/5] $(2) …"
	@$(3) || { echo "Stopped at stage $(1) of 5, $(2): $(4)"; exit 1; }
endef

define static_stages
	$(call stage,1,lint,$(BIN)/ruff check --quiet .,ruff found the mistakes above; make format mends some of them.)
	$(call stage,2,format,$(BIN)/ruff format --quiet --check .,make format rewrites the files above.)
	$(call stage,3,types,$(BIN)/pyright,pyright found the type errors above.)
	$(call stage,4,layers,$(BIN)/lint-imports --no-logo --no-cache,an import crosses the layers; pyproject.toml says which may import which.)
endef

test: $(DEVELOP_STAMP)
	$(static_stages)
	$(call stage,5,tests,$(BIN)/python -m pytest -n 2 -q -m "not slow" $(PYTEST_ARGS),the tests named above failed.)
	@echo "All five stages passed."

lint: $(DEVELOP_STAMP)
	$(static_stages)
	@echo "Nothing to mend."

slow: $(DEVELOP_STAMP)
	@echo "Running the slow tests, which takes several minutes …"
	@$(BIN)/python -m pytest -q -m slow $(PYTEST_ARGS) || { echo "The slow tests named above failed."; exit 1; }

format: $(DEVELOP_STAMP)
	@$(BIN)/ruff check --quiet --fix . || { echo "The mistakes above need a human."; exit 1; }
	@$(BIN)/ruff format .

peers: $(PEERS_STAMP) $(PEERS_SBX_STAMP)
	@echo "The peers are installed in $(PEERS) and $(PEERS_SBX)."

bench: $(DEVELOP_STAMP) $(PEERS_STAMP) $(PEERS_SBX_STAMP)
	@test -f bench/$(BENCH).py || { echo "There is no bench/$(BENCH).py. BENCH= takes the name of one of: $$(ls bench/*.py 2>/dev/null | xargs -n1 basename -s .py | tr '\n' ' ')"; exit 1; }
	@$(BIN)/python bench/$(BENCH).py $(ARGS) || { echo "bench/$(BENCH).py failed, for the reason above."; exit 1; }

clean:
	@rm -rf build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	@echo "Caches and build outputs are gone. To remove the environments too: rm -rf $(VENV) $(PEERS) $(PEERS_SBX)"

# ------------------------------------------------------------------------------ environments

# $(call check_python,interpreter,what to do about it)
define check_python
	@command -v $(1) >/dev/null || { echo "There is no $(1) here. $(2)"; exit 1; }
	@$(1) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "trimtab needs Python 3.11 or newer; $(1) is $$($(1) --version 2>&1). $(2)"; exit 1; }
endef

OTHER_PYTHON := Name another Python: make PYTHON=python3.12 $(firstword $(MAKECMDGOALS))

# A half-made environment is removed, so that the next attempt starts afresh.
define make_environment
	$(call check_python,$(PYTHON),$(OTHER_PYTHON))
	@$(PYTHON) -m venv $(1) || { rm -rf $(1); echo "$(PYTHON) could not make $(1), for the reason above. $(OTHER_PYTHON)"; exit 1; }
endef

$(BIN)/python:
	$(call make_environment,$(VENV))

$(PEERS)/bin/python:
	$(call make_environment,$(PEERS))

$(PEERS_SBX)/bin/python:
	$(call make_environment,$(PEERS_SBX))

NOT_INSTALLED := The installation failed, for the reason above. The same command tries again.

# $(call install,what is installed,pip arguments)
define install
	$(call check_python,$(BIN)/python,Remove it (rm -rf $(VENV)) and try again.)
	@echo "Installing $(1) into $(VENV), which takes about a minute …"
	@$(BIN)/python $(PIP) install $(2) || { echo "$(NOT_INSTALLED)"; exit 1; }
endef

# The order-only prerequisite: the interpreter's date means nothing, only its presence.
$(USE_STAMP): pyproject.toml | $(BIN)/python
	$(call install,trimtab,--editable .)
	@touch $@

$(DEVELOP_STAMP): pyproject.toml | $(BIN)/python
	$(call install,trimtab and its development tools,--editable '.[dev]')
	@touch $(USE_STAMP) $@

# Torch comes first, so that its version is ours. rejax accepts any gymnax but was written for the
# step of 0.0.9, which the last line puts back. trimtab needs gymnax 1.0, so the peers have an
# environment of their own, without trimtab.
$(PEERS_STAMP): Makefile | $(PEERS)/bin/python
	@echo "Installing the peers (torch, stable-baselines3, rejax) into $(PEERS), which takes about a minute …"
	@$(PEERS)/bin/python $(PIP) install $(TORCH_PIP_ARGS) torch==2.13.0 \
		&& $(PEERS)/bin/python $(PIP) install stable-baselines3 rejax==0.1.3 'gymnasium[mujoco]' \
		&& $(PEERS)/bin/python $(PIP) install --no-deps gymnax==0.0.9 \
		|| { echo "$(NOT_INSTALLED)"; exit 1; }
	@touch $@

# sbx: Stable-Baselines3 in JAX, which wants versions of its own.
$(PEERS_SBX_STAMP): Makefile | $(PEERS_SBX)/bin/python
	@echo "Installing the peer sbx into $(PEERS_SBX), which takes about a minute …"
	@$(PEERS_SBX)/bin/python $(PIP) install $(TORCH_PIP_ARGS) torch==2.13.0 \
		&& $(PEERS_SBX)/bin/python $(PIP) install sbx-rl==0.28.0 stable-baselines3 'gymnasium[mujoco]' \
		|| { echo "$(NOT_INSTALLED)"; exit 1; }
	@touch $@
