# Everything a person needs: `make run` on a fresh machine, `make test` before a change is shared.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Exactly one MLX backend may be installed; macOS brings its own.
ifeq ($(shell uname -s),Darwin)
  BACKEND :=
else ifneq ($(shell command -v nvidia-smi 2>/dev/null),)
  BACKEND := cuda
else
  BACKEND := cpu
endif
comma := ,
RUN_EXTRAS := $(if $(BACKEND),[$(BACKEND)],)
TEST_EXTRAS := [$(if $(BACKEND),$(BACKEND)$(comma),)dev]

.PHONY: help run install test test-all lint format clean

help:
	@echo "make run       install, fetch the default model, open the agent"
	@echo "make install   make the environment $(VENV) only"
	@echo "make test      all fast tests, installing what they need"
	@echo "make test-all  the slow tests too (fetches qwen2.5-coder-0.5b)"
	@echo "make lint      style check        make format   apply the style"

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "ds4-agent needs Python 3.11 or newer; found $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "this Python cannot make an environment: install its venv package (Debian: python3-venv)"; exit 1; }

# Installing also compiles the CPU kernels, where there is a compiler.
KERNELS := $(wildcard mlx_kernels/cpu/csrc/*)

$(VENV)/.installed: pyproject.toml $(KERNELS) $(VENV)/pyvenv.cfg
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.$(RUN_EXTRAS)'
	@touch $@

$(VENV)/.installed-tests: pyproject.toml $(KERNELS) $(VENV)/pyvenv.cfg
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.$(TEST_EXTRAS)'
	@touch $@ $(VENV)/.installed

install: $(VENV)/.installed

run: install
	@sh .ci/system-packages bubblewrap || true
	@$(BIN)/ds4-agent models pull default --yes
	@$(BIN)/ds4-agent

test: $(VENV)/.installed-tests lint
	@sh .ci/system-packages bubblewrap tmux ripgrep git
	@$(BIN)/ds4-agent models pull smollm2-135m --yes
	$(BIN)/python -m pytest -q

test-all: $(VENV)/.installed-tests lint
	@sh .ci/system-packages bubblewrap tmux ripgrep git
	@$(BIN)/ds4-agent models pull smollm2-135m --yes
	@$(BIN)/ds4-agent models pull qwen2.5-coder-0.5b --yes
	$(BIN)/python -m pytest -q -m 'slow or not slow'

lint: $(VENV)/.installed-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-tests
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache
