# Needs GNU make, git and Python >= 3.11; everything else goes into .venv.
# Options go through ARGS:  make train ARGS="task=mul seed=0-4"   make test ARGS="-k dropout"

.DEFAULT_GOAL := help
.PHONY: help train mini test lint docs tables dist lock clean

# A python3.x on the PATH may not work (a pyenv shim, for example), so each is tried. PYTHON=... is tried first.
define find_python
for python in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3 ''; do \
	"$$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; done; \
[ -n "$$python" ] || { echo 'No Python >= 3.11 with venv found: install one, or name it with PYTHON=path.' >&2; exit 1; }
endef
# Settings of the user's pip that would install elsewhere than into .venv: from the environment, and from a pip.conf, over
# which that of .venv has precedence. Others, such as a mirror, stay.
unexport PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_NO_DEPS PIP_DRY_RUN
pip_conf = [%s]\nuser = no\ntarget =\nprefix =\nroot =\nno-deps = no\ndry-run = no\n
pip_install = .venv/bin/python -m pip install -qq --disable-pip-version-check -c requirements.lock

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

train: .venv/.installed ## train a first network, in a few minutes; with ARGS, train.py $(ARGS)
	@.venv/bin/python train.py $(or $(ARGS),experiment=first)

mini: .venv/.installed ## the paper in miniature: every run of addition, ten seeds each, and its report
	@PATH="$(CURDIR)/.venv/bin:$$PATH" paper/scripts/mini.sh $(ARGS)

test: .venv/.installed-dev ## run the quick tests, a process for each core (ARGS="-m slow": the slow ones)
	@OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

lint: .venv/.installed-dev ## ruff check, ruff format --check, mypy
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

docs: .venv/.installed-docs ## build the documentation into site/ (AUTHORS=add_model: the authors' weights in the explorer)
	@NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict --quiet $(ARGS)
	@echo 'site/index.html'

tables: .venv/.installed-dev ## write the tables of README and paper/found/ anew from paper/results/ (ARGS=--check: only compare)
	@.venv/bin/python -m arith_erd.paper.tables $(ARGS)

dist: ## build wheel and sdist of the last commit into dist/, and check them (ARGS=v1.0.0: of this tag)
	@tests/release.sh $(ARGS)

# Each stamp is written last. Without the first one the environment is made anew, so that an interrupted set-up is
# repeated. Training needs only the first; tests and documentation add their own tools.
.venv/.installed: requirements.lock pyproject.toml setup.py
	@$(find_python); echo 'Setting up .venv: pip fetches PyTorch and the rest of requirements.lock, once, a few minutes...' >&2; \
	[ -f $@ ] || "$$python" -m venv --clear .venv || exit 1; rm -f $@; \
	printf '$(pip_conf)' global install > .venv/pip.conf; $(pip_install) -e . && touch $@

.venv/.installed-%: .venv/.installed
	@echo 'Adding the tools of the $* extra to .venv...' >&2; $(pip_install) -e '.[$*]' && touch $@

lock: ## resolve the lock files, keeping existing pins (ARGS=--upgrade: newest versions)
	@$(find_python); tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	"$$python" -m venv "$$tmp" && "$$tmp/bin/python" -m pip install -qq --disable-pip-version-check uv && \
	compile() { "$$tmp/bin/uv" pip compile pyproject.toml --quiet --no-annotate --no-emit-index-url \
		--custom-compile-command 'make lock' "$$@"; } && \
	compile --universal --python-version 3.11 --fork-strategy fewest --extra dev --extra docs --extra ray \
		-o requirements.lock $(ARGS) && \
	compile -c requirements.lock --extra dashboard --python-version 3.12 --python-platform x86_64-manylinux_2_28 --generate-hashes \
		-o deploy/requirements.docker.txt $(ARGS)

clean: ## remove .venv, dist/, site/ and all caches; keep runs/
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site src/*.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
