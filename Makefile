# `make demo` and `make test` set up everything they need in .venv; both run again quickly.

PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,\
	$(shell $(p) -c 'import sys; sys.version_info >= (3, 11) and print("$(p)")' 2>/dev/null)))
# Another release of torch has an environment of its own, in which torchvision may be compiled for it.
VENV := .venv$(TORCH:%=-torch-%)
BIN := $(VENV)/bin
CONSTRAINTS := $(if $(TORCH),$(VENV)/)constraints.txt
# Python compiles what is imported; all that is installed would take another 40 s.
PIP := $(BIN)/pip install --quiet --no-compile --constraint $(CONSTRAINTS)
RESULTS := torchgauge-results
SPEEDSCOPE := tests/support/speedscope
SETUP := pyproject.toml constraints.txt Makefile $(wildcard tests/support/*torchvision*)

# Tests start hundreds of processes; each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-thorough test-all test-torch gpu wheels page bundle browser pictures lint types contract docs bench clean

demo: $(VENV)/demo
	$(BIN)/torchgauge profile examples/resnet18.py:resnet18 --output-dir $(RESULTS)

test: $(VENV)/dev
	$(BIN)/pytest -n 2 -m "not thorough and not slow and not gpu and not attack and not browser"

# What `.ci/run` runs: those of `make test`, and the same ground in more cases and end to end.
test-thorough: $(VENV)/dev
	$(BIN)/pytest -n 2 -m "not slow and not gpu and not attack and not browser"

# What `make test` runs, with another release of torch: TORCH=2.14.1. `make clean TORCH=2.14.1` deletes
# its environment, of 6 GB where torch brings CUDA.
test-torch:
	@test -n "$(TORCH)" || { echo "Say which: make test-torch TORCH=2.14.1" >&2; exit 1; }
	$(MAKE) test TORCH=$(TORCH)

test-all: $(VENV)/integrations
	$(BIN)/pytest -n 2 -m "not gpu"

# All that a GPU can show, in at most 6 minutes. Sets up nothing: PYTHON is taken as it is, and says
# what it lacks. Without a GPU every row says so.
gpu:
	PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) benchmarks/gpu.py $(GPU_OPTIONS)

# A folder of what a machine without a network lacks: WHEELS_OPTIONS="--present packages.txt".
wheels: $(VENV)/dev
	$(BIN)/python benchmarks/gpu_wheels.py $(WHEELS_OPTIONS)

# The report page: `page` bundles web/ into the package, `bundle` compares the two, `browser` tests
# it in Chromium.
page: web/node_modules
	cd web && npm run build

bundle: web/node_modules
	cd web && npm run check

browser: $(VENV)/dev web/node_modules
	$(PIP) --editable '.[browser]'
	$(BIN)/pytest -m browser

# The pictures of README and tour, from a real run; best on a machine that does nothing else.
pictures: $(VENV)/dev
	$(PIP) --editable '.[browser]'
	$(BIN)/python docs/pictures/draw.py

web/node_modules: web/package.json web/package-lock.json
	cd web && npm ci --no-audit --no-fund
	touch $@

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m checks.names
	$(BIN)/python -m checks.prose

types: $(VENV)/dev
	$(BIN)/mypy

contract: $(VENV)/dev
	$(BIN)/lint-imports
	$(BIN)/python -m checks.house

docs: $(VENV)/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(VENV)/dev $(VENV)/peers
	for name in startup overhead training training_memory latency_peers latency_simulation models hygiene exported_programs \
		costs_speed costs_torchvision costs_models costs_on_meta costs_events decode readers timeline_overhead \
		timeline_speed timeline_trees loop_memory sweep_fit history_trends history_writers \
		generation_fit generation_hand_timing generation_held_out load_client monitor_cost trainers \
		load_coverage; do \
		$(BIN)/python benchmarks/$$name.py || exit 1; done
	$(BIN)/python benchmarks/hygiene_peers.py $(VENV)/peers
	$(BIN)/python benchmarks/costs_peers.py $(VENV)/peers
	$(BIN)/python benchmarks/timeline_accuracy.py $(VENV)/peers
	$(BIN)/python benchmarks/traces_peers.py $(VENV)/peers
	$(BIN)/python benchmarks/generation_peers.py
	$(BIN)/python benchmarks/monitor_alerts.py --days-runs 2 --step-runs 20 --world usual
	$(BIN)/python benchmarks/first_tasks.py $(VENV)/peers

clean:
	rm -rf $(VENV) $(RESULTS)

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none was found."; exit 1; }
	$(PYTHON) -m venv $(VENV)

.venv-torch-$(TORCH)/constraints.txt: $(VENV)/bin/python constraints.txt
	sed 's/^torch==.*/torch==$(TORCH)/; /^torchvision==/d' constraints.txt > $@

# pip takes the torchvision that names the release of torch.
$(VENV)/demo: $(VENV)/bin/python $(CONSTRAINTS) $(SETUP)
	$(if $(TORCH),$(PIP) torch torchvision)
	$(PIP) --editable '.[torch]'
	touch $@

# torchvision pins a torch of its own, and timm asks for torchvision: both come without their
# dependencies, and torchvision's operators are declared for a torch it was not compiled for.
$(VENV)/dev: $(VENV)/demo
	$(PIP) --editable '.[torch,nvidia,huggingface,dev,docs]'
	$(PIP) --no-deps torchvision timm
	$(BIN)/python tests/support/install_torchvision_schemas.py
	touch $@

# What some tests read our files with. They are skipped without it, and so is npm where it is absent.
$(VENV)/integrations: $(VENV)/dev $(SPEEDSCOPE)/package-lock.json
	$(PIP) --editable '.[integrations,openvino,torchao]'
	! command -v npm >/dev/null || npm ci --silent --no-audit --no-fund --prefix $(SPEEDSCOPE)
	touch $@

# Other tools, for comparison alone: apart from our environment, of the versions that they name
# themselves, and without what they depend on.
$(VENV)/peers: $(VENV)/dev benchmarks/requirements-peers.txt
	$(BIN)/pip install --quiet --no-deps --upgrade --target $@ \
		--requirement benchmarks/requirements-peers.txt
	touch $@
