# `make up` builds a cluster in a box and deploys the environment `dev` on it; `make test` passes every test.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.NOTPARALLEL:
export PATH := $(PATH):/usr/sbin:/sbin# where Debian keeps iptables and debootstrap

ENV ?= dev# the environment: Pulumi.$(ENV).yaml
LAB ?= dev# the lab instance
PYTHON ?= python3
PY := .venv/bin/python
VENV := .venv/.installed# made last, so that half an environment is made again
ENGINE := $(PY) -m lab.engine --instance $(LAB)# pulumi, with the lab's hosts, plugins, state and cluster
PYTEST := $(PY) -m pytest

.PHONY: help up preview verify destroy down stack test test-unit test-engine test-system tools lint format lock bench \
  lab-up lab-down lab-status lab-shell debian

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

up: lab-up stack ## lab, `pulumi up` of the environment, and the proof that it works
	$(ENGINE) -- up --yes --skip-preview --suppress-outputs --stack $(ENV)
	@$(MAKE) verify
	@echo "Base URLs inside the cluster; from outside see 'make lab-status':"
	@$(ENGINE) -- stack output endpoints --stack $(ENV)

preview: lab-up stack ## what `pulumi up` would change
	$(ENGINE) -- preview --diff --stack $(ENV)

verify: $(VENV) ## prove that the environment does what it declares
	@$(ENGINE) --run -- $(PY) -m ops verify --stack $(ENV)

destroy: $(VENV) ## take the environment down, keep the lab
	$(ENGINE) -- destroy --yes --stack $(ENV)

down: lab-down ## take the lab down, and with it all that runs there

stack: $(VENV)
	@$(ENGINE) -- stack select --create $(ENV)

test: debian lint test-unit test-engine test-system ## every test

test-unit: tools ## unit and program tiers: no cluster, under a minute
	$(PYTEST) tests/unit tests/program

test-engine: tools ## real Pulumi engine, API server, Envoy and stand-ins
	$(PYTEST) tests/engine

test-system: tools ## labs of their own: traffic, scaling, faults
	$(PY) -m lab images
	$(PYTEST) tests/system

tools: debian $(VENV) ## build the lab's programs (25 minutes on two cores the first time)
	@$(PY) -m lab tools >/dev/null

bench: debian $(VENV) ## the figures of docs/design.md, measured on this machine
	$(PY) -m tests.bench

lint: $(VENV) ## style and types
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m ty check

format: $(VENV) ## apply the formatter and the safe fixes
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

lab-up: debian $(VENV) ## start the lab (twice is harmless)
	$(PY) -m lab up --instance $(LAB)

lab-down: $(VENV) ## end the lab
	$(PY) -m lab down --instance $(LAB)

lab-status: $(VENV) ## what runs, and what does not
	$(PY) -m lab status --instance $(LAB)

lab-shell: $(VENV) ## a shell inside the lab's namespaces, with its kubeconfig
	$(PY) -m lab shell --instance $(LAB)

debian: ## the Debian packages that the lab runs on
	@$(PYTHON) -m lab.host
	@$(PYTHON) -m lab.debian_packages || { apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$(cat lab/debian-packages.txt) >/dev/null; }

$(VENV): requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed, $(PYTHON) is older: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv --clear .venv
	.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

UV := .venv/bin/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 \
  --no-emit-index-url --no-annotate --no-header
lock: ## compile the .in files again; the development lock is the larger one and leads
	$(UV) requirements-dev.in -o requirements-dev.txt
	sed 's/ --hash.*//; /--hash/d; s/ \\$$//' requirements-dev.txt > .venv/constraints.txt
	$(UV) -c .venv/constraints.txt requirements.in -o requirements.txt
