# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Everything is built below build/; Debian packages that are missing are installed (as root).

SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
N ?= 2
PYTEST_ARGS ?=
# Of make bench-fleet: numbers of hosts.
SIZES ?= 1,10
REPLAYED ?= 1,10,50,200
BENCH_ARGS ?=
# Of make coverage.
PARTS ?= unit simulated deployment

BUILD := $(CURDIR)/build
VENV := $(BUILD)/venv
TOOLING := tests/tooling
COLLECTION := ansible_collections/inferops/sglang
# A link to the sources, for what names files in its messages, and a copy, for what follows no links.
LINKS := $(BUILD)/links
TREE := $(BUILD)/tree
COPY := $(TREE)/$(COLLECTION)

export PYTHON
# The tests start hundreds of Pythons: without compiled files each would compile everything again.
unexport PYTHONDONTWRITEBYTECODE
export ANSIBLE_HOME := $(BUILD)/ansible
export TH_PYTHON := $(VENV)/bin/python
# For each recipe alone: python3 must stay the machine's own where the environment is made.
IN_VENV := PATH=$(VENV)/bin:$$PATH

RUN_ENVIRONMENT := $(VENV)/.installed-run
TEST_ENVIRONMENT := $(VENV)/.installed-test
GALAXY_VENV := $(BUILD)/galaxy-venv
GALAXY_ENVIRONMENT := $(GALAXY_VENV)/.installed
COVERAGE_ENVIRONMENT := $(VENV)/.installed-coverage
MUTATION_VENV := $(BUILD)/mutation-venv
MUTATION_ENVIRONMENT := $(MUTATION_VENV)/.installed
# Each part has temporary folders of its own: at its start pytest closes the folder above them to other users.  They
# lie in $$root, /tmp where the names of sockets would become too long.  Compiled files go to a folder of their own.
PYTEST := root=$${root:-/tmp/inferops-$$part} && mkdir -p $$root && $(IN_VENV) PYTEST_DEBUG_TEMPROOT=$$root PYTHONPATH=$(LINKS) PYTHONPYCACHEPREFIX=$(BUILD)/pycache $$alone python -m pytest --junitxml=$(BUILD)/reports/$$part.xml $(PYTEST_ARGS)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# ---- the two that the README names ----------------------------------------------------------------------------------

.PHONY: demo
demo: ## the restart on two simulated hosts with eight GPUs each, as root
	@$(MAKE) --no-print-directory --jobs=2 venv-run hosts-root simulator
	@tests/demo/run

.PHONY: test
test: ## all tests, as root
	@$(PYTHON) $(TOOLING)/run_checks.py

# ---- parts of the tests ---------------------------------------------------------------------------------------------

.PHONY: unit
unit: $(TEST_ENVIRONMENT) links ## unit tests
	@part=$(or $(PART),unit); $(PYTEST) $(BRIEF) tests/unit

.PHONY: unit-brief
unit-brief: ## without the long ones and those that molecule plays as well, with fewer examples of each property
	@$(MAKE) --no-print-directory unit PART=unit-brief BRIEF='-m "not also_on_hosts and not long" --hypothesis-profile=brief'

# In two parts of about the same length, so that they can run side by side.
DEPLOYMENT_TESTS := $(wildcard tests/simulated/test_sglang*.py) \
	$(addprefix tests/simulated/,test_ready_cases.py test_release_cases.py test_stop_cases.py)

.PHONY: simulated
simulated: $(TEST_ENVIRONMENT) links simulator ## the GPU modules on real processes with simulated GPUs
	@$(TOOLING)/need-packages gcc libc6-dev procps
	@part=simulated; root=/tmp; alone=tests/simulated/alone; $(PYTEST) tests/simulator tests/simulated $(addprefix --ignore=,$(DEPLOYMENT_TESTS))

.PHONY: deployment
deployment: $(TEST_ENVIRONMENT) links simulator ## the SGLang modules on stand-in servers
	@$(TOOLING)/need-packages gcc libc6-dev procps
	@part=deployment; alone=tests/simulated/alone; $(PYTEST) $(DEPLOYMENT_TESTS)

.PHONY: parsers
parsers: $(TEST_ENVIRONMENT) links ## preflight against the parsers of real SGLang releases
	@$(IN_VENV) python tests/parsers/releases.py $(BUILD)/parsers
	@part=parsers; $(PYTEST) tests/parsers

.PHONY: parsers-newest
parsers-newest: $(TEST_ENVIRONMENT) links ## only the newest of them
	@$(IN_VENV) RELEASES=newest python tests/parsers/releases.py $(BUILD)/parsers
	@export RELEASES=newest; part=parsers-newest; $(PYTEST) tests/parsers

.PHONY: routers
routers: $(TEST_ENVIRONMENT) links simulator ## restarts behind real routers, in which no request may fail
	@$(TOOLING)/need-packages gcc libc6-dev procps
	@$(IN_VENV) python tests/routers/install_routers.py $(BUILD)/routers
	@part=routers; alone=tests/simulated/alone; $(PYTEST) tests/routers

.PHONY: browser
browser: $(TEST_ENVIRONMENT) links ## the HTML pages in a headless Chromium, on a phone and on a large screen
	@$(TOOLING)/need-packages chromium fonts-dejavu-core
	@part=browser; $(PYTEST) tests/browser

.PHONY: matrix
matrix: $(TEST_ENVIRONMENT) links tree ## every supported Python, ansible-core, nvidia-ml-py; some: MATRIX="--only target-3.8"
	@$(TOOLING)/need-packages gcc libc6-dev procps
	@$(IN_VENV) python tests/matrix/run_matrix.py $(MATRIX)

.PHONY: matrix-ends
matrix-ends: $(TEST_ENVIRONMENT) links ## only the oldest and the newest of each
	@$(TOOLING)/need-packages gcc libc6-dev procps
	@$(IN_VENV) python tests/matrix/run_matrix.py --ends $(MATRIX)

.PHONY: matrix-oldest
matrix-oldest: $(TEST_ENVIRONMENT) links ## only the modules on the oldest Python of a host
	@$(TOOLING)/need-packages gcc libc6-dev procps
	@$(IN_VENV) python tests/matrix/run_matrix.py --oldest $(MATRIX)

.PHONY: lint
lint: $(TEST_ENVIRONMENT) links tree ## all linters
	@$(IN_VENV) $(TOOLING)/lint $(LINKS) $(COPY)

.PHONY: ecosystem
ecosystem: $(TEST_ENVIRONMENT) $(GALAXY_ENVIRONMENT) tree ## what Galaxy, builders of images and GitHub would say
	@$(IN_VENV) $(TOOLING)/ecosystem $(COPY) $(GALAXY_VENV)

.PHONY: sanity
sanity: $(TEST_ENVIRONMENT) tree ## ansible-test sanity
	@$(IN_VENV) $(TOOLING)/sanity $(COPY) $(BUILD)/home

.PHONY: sanity-brief
sanity-brief: $(TEST_ENVIRONMENT) tree ## the same without pylint, which is half of its time
	@$(IN_VENV) $(TOOLING)/sanity $(COPY) $(BUILD)/home --skip-test pylint

.PHONY: molecule
molecule: $(TEST_ENVIRONMENT) tree hosts-root ## playbooks against test hosts over ssh, as root; one: SCENARIO=name
	@$(IN_VENV) $(TOOLING)/molecule $(COPY) $(SCENARIO)

# The same in three parts of about the same length, which run side by side on hosts of their own.
FLEET_SCENARIOS := gpu_reset gpu_status restart_eagle3 rolling
LONG_SCENARIOS := interrupted multi_node spec_sweep

.PHONY: molecule-host
molecule-host: $(TEST_ENVIRONMENT) tree hosts-root ## those about one host
	@$(IN_VENV) $(TOOLING)/molecule $(COPY) --all-but $(FLEET_SCENARIOS) $(LONG_SCENARIOS)

.PHONY: molecule-fleet
molecule-fleet: $(TEST_ENVIRONMENT) tree hosts-root ## those about several, or about what a fleet needs
	@$(IN_VENV) TH_NAME=molecule-fleet TH_NET=10.213.10 ANSIBLE_HOME=$(BUILD)/ansible-fleet \
		$(TOOLING)/molecule $(COPY) $(FLEET_SCENARIOS)

.PHONY: molecule-long
molecule-long: $(TEST_ENVIRONMENT) tree hosts-root ## those that run many playbooks each
	@$(IN_VENV) TH_NAME=molecule-long TH_NET=10.213.11 ANSIBLE_HOME=$(BUILD)/ansible-long \
		$(TOOLING)/molecule $(COPY) $(LONG_SCENARIOS)

.PHONY: docs
docs: $(TEST_ENVIRONMENT) tree ## the site of the docs, in build/docs/html; a warning is an error
	@$(IN_VENV) $(TOOLING)/docs $(COPY) $(BUILD)/docs

.PHONY: docs-test
docs-test: $(if $(STORIES),$(TEST_ENVIRONMENT) tree,docs) links hosts-root ## that site, and every code block of every page, as root; one: STORIES=docs/rollback.md
	@trap 'TH_NAME=docs tests/testhosts/testhosts down' EXIT; trap 'exit 1' INT TERM HUP; \
	part=$(or $(PART),docs-test); export STORIES="$(STORIES)" TH_NAME=docs TH_NET=10.213.9; rm -rf $(BUILD)/docs-payloads; \
	export ANSIBLE_CALLBACK_PLUGINS=$(CURDIR)/$(TOOLING)/callback ANSIBLE_CALLBACKS_ENABLED=shared_payloads \
		SHARED_PAYLOADS=$(BUILD)/docs-payloads; $(PYTEST) tests/docs

.PHONY: docs-brief
docs-brief: ## every code block read, and those run that a first visitor runs
	@$(MAKE) --no-print-directory docs-test PART=docs-brief STORIES="README.md docs/quick-start.md"

.PHONY: one
one: $(TEST_ENVIRONMENT) links ## one test or folder of tests: TEST=tests/unit/test_layers.py
	@part=one; root=/tmp; $(PYTEST) $(or $(TEST),$(error TEST names a file, a folder or FILE::TEST))

.PHONY: format
format: $(TEST_ENVIRONMENT) ## put the Python files into shape
	@$(IN_VENV) ruff check --quiet --fix --cache-dir $(BUILD)/ruff_cache && \
	$(IN_VENV) ruff format --cache-dir $(BUILD)/ruff_cache

.PHONY: gpu-test
gpu-test: $(TEST_ENVIRONMENT) links ## on a host with real GPUs: see tests/gpu/README.md
	@part=gpu; $(PYTEST) -s tests/gpu

.PHONY: coverage
coverage: $(COVERAGE_ENVIRONMENT) ## how much of plugins/ the tests run; some of them: PARTS="unit"
	@$(IN_VENV) python tests/coverage/run.py $(BUILD)/coverage $(BUILD)/reports $(PARTS)

.PHONY: mutation
mutation: $(MUTATION_ENVIRONMENT) ## small changes that no unit test notices, as root; one file: FILE=gpu/plan.py
	@$(MUTATION_VENV)/bin/python tests/mutation/run.py $(BUILD)/mutation $(if $(AGAIN),--again) $(FILE)

.PHONY: bench
bench: $(TEST_ENVIRONMENT) ## measurements against the practice, as root: see docs/performance.md
	@$(TOOLING)/need-packages gcc libc6-dev psmisc lsof
	@set -e; export PATH=$(VENV)/bin:$$PATH; python benchmarks/holder_scan.py; echo; \
	python benchmarks/reclaim_and_wait.py --simulated; echo; \
	python benchmarks/module_start.py; echo; \
	python benchmarks/look_cost.py

.PHONY: bench-fleet
bench-fleet: $(TEST_ENVIRONMENT) hosts-root ## restarts of a fleet against the practice, as root; SIZES=1,10 REPLAYED=1,200
	@$(TOOLING)/need-packages gcc libc6-dev
	@$(IN_VENV) python benchmarks/fleet_restart.py --sizes "$(SIZES)" --replayed "$(REPLAYED)" $(BENCH_ARGS)

# ---- test hosts -----------------------------------------------------------------------------------------------------

.PHONY: hosts-root
hosts-root: ## the Debian root of the test hosts (once)
	@tests/testhosts/testhosts build

.PHONY: hosts-up
hosts-up: $(RUN_ENVIRONMENT) ## start N=2 test hosts to try things on
	@tests/testhosts/testhosts up $(N)

.PHONY: hosts-down
hosts-down: ## stop them
	@tests/testhosts/testhosts down

# ---- what the above needs -------------------------------------------------------------------------------------------

.PHONY: venv
venv: $(TEST_ENVIRONMENT) ## the virtual environment with all tools

.PHONY: venv-run
venv-run: $(RUN_ENVIRONMENT) ## the same with Ansible alone

.PHONY: galaxy-venv
galaxy-venv: $(GALAXY_ENVIRONMENT) ## the one with the tools of Galaxy

$(RUN_ENVIRONMENT): tests/requirements/run.txt
	@$(TOOLING)/make-venv $(VENV) $<
	@touch $@

$(TEST_ENVIRONMENT): tests/requirements/test.txt tests/requirements/docs.txt $(RUN_ENVIRONMENT)
	@$(TOOLING)/make-venv $(VENV) $<
	@touch $@

$(COVERAGE_ENVIRONMENT): tests/requirements/coverage.txt $(TEST_ENVIRONMENT)
	@$(TOOLING)/make-venv $(VENV) $<
	@touch $@

$(MUTATION_ENVIRONMENT): tests/requirements/mutation.txt
	@$(TOOLING)/make-venv $(MUTATION_VENV) $<
	@touch $@

$(GALAXY_ENVIRONMENT): tests/requirements/lint-galaxy.txt
	@$(TOOLING)/make-venv $(GALAXY_VENV) $<
	@touch $@

.PHONY: simulator
simulator: ## the fake NVML library
	@tests/simulator/nvml/build.sh $(BUILD)/simulator

.PHONY: links
links:
	@mkdir -p $(dir $(LINKS)/$(COLLECTION))
	@ln -sfn $(CURDIR) $(LINKS)/$(COLLECTION)

.PHONY: tree
tree:
	@$(TOOLING)/need-packages git
	@$(PYTHON) $(TOOLING)/copy_tree.py $(COPY)

# ---- release and housekeeping ---------------------------------------------------------------------------------------

.PHONY: build
build: $(RUN_ENVIRONMENT) tree ## the collection as an archive, in build/dist
	@# From the copy: ansible-galaxy would also pack what git ignores.
	@$(VENV)/bin/ansible-galaxy collection build --force --output-path $(BUILD)/dist $(COPY)

.PHONY: clean
clean: ## remove build/
	@rm -rf $(BUILD)
