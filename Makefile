# The front door. `make help` lists what there is; the two that matter are `make run` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PROMPT ?= What is the capital of France?
MODEL ?= models/SmolLM2-135M-Instruct.Q4_1.gguf
PRESET ?= release
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
PYTHON ?= python3
say = @printf '\033[1m==> %s\033[0m\n' "$(1)" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi

.PHONY: help build run test test-interop models models-all vocab venv bench fuzz asan tsan format lint install clean gpu-check packages

help: ## what there is
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

packages: ## install the system packages that are missing (Debian 12, root or sudo)
	@tools/install_packages.sh build

$(BUILD)/build.ninja: CMakeLists.txt CMakePresets.json
	$(call say,configure ($(PRESET)))
	@cmake --preset $(PRESET) > $(BUILD)-configure.log 2>&1 || { cat $(BUILD)-configure.log; exit 1; }

$(BUILD).dir:
	@mkdir -p build

build: packages $(BUILD).dir $(BUILD)/build.ninja ## build/release/quintet
	$(call say,build $(BUILD)/quintet)
	@cmake --build $(BUILD) --target quintet -- -j$(JOBS) $(if $(CI),,--quiet)

run: build ## build, fetch a small real model, and answer PROMPT="..."
	$(call say,model $(MODEL))
	@$(PYTHON) tools/fetch_models.py smollm2
	$(call say,answer: $(PROMPT))
	@$(BUILD)/quintet run $(MODEL) -p "$(PROMPT)"

models: packages ## fetch the two small real models, checked by hash
	@$(PYTHON) tools/fetch_models.py smollm2 gemma3

models-all: packages ## fetch Qwen2.5-Coder 0.5B too
	@$(PYTHON) tools/fetch_models.py smollm2 gemma3 qwen2.5

vocab: packages ## fetch the vocabularies and chat templates that the tests compare with
	@$(PYTHON) tools/fetch_models.py vocab

venv: packages ## the Python environment of the tests
	@tools/make_venv.sh

test: build models vocab venv ## build and run everything that needs no GPU; ends with counts
	$(call say,build the tests)
	@cmake --build $(BUILD) -- -j$(JOBS) $(if $(CI),,--quiet)
	$(call say,run the tests)
	@$(PYTHON) tools/run_tests.py $(BUILD) $(TEST_ARGS)

asan: packages models vocab venv ## the tests under address and undefined behaviour sanitizers
	@cmake --preset asan > /dev/null && cmake --build build/asan -- -j$(JOBS)
	@$(PYTHON) tools/run_tests.py build/asan $(TEST_ARGS)

tsan: packages models venv ## the engine's and the server's tests under the thread sanitizer
	@cmake --preset tsan > /dev/null && cmake --build build/tsan --target quintet_engine_tests quintet_server_tests -- -j$(JOBS)
	@$(PYTHON) tools/run_tests.py build/tsan -R '^(engine|server)$$'

test-interop: build ## folders of other tools in quintet and the other way round (PyTorch and more: minutes to install)
	@# llama.cpp without what is native: its AMX products end a process with a general protection fault (Xeon, small models)
	@CMAKE_ARGS=-DGGML_NATIVE=OFF tools/make_venv.sh .cache/interop/venv tests/interop/requirements.txt
	@.cache/interop/venv/bin/python tests/interop/interop.py --program $(BUILD)/quintet $(TEST_ARGS)

bench: build ## measure this machine's CPU path beside llama.cpp
	@$(PYTHON) bench/vs_llama_cpp.py

gpu-check: packages ## pack what a GPU machine runs: tests, compute-sanitizer, benches (CONTRIBUTING.md)
	@tools/gpu_check.sh

fuzz: ## run every fuzz target 60 s on its corpus
	@tools/install_packages.sh build fuzz
	@cmake --preset fuzz > /dev/null && cmake --build build/fuzz --target quintet_fuzzers -- -j$(JOBS)
	@$(PYTHON) tools/run_fuzz.py build/fuzz --seconds $(or $(SECONDS_EACH),60)

format: ## clang-format over the sources
	@tools/install_packages.sh lint
	@git ls-files 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'bench/*.cpp' 'fuzz/*.cpp' | xargs clang-format -i

lint: build ## clang-tidy over the sources
	@tools/install_packages.sh lint
	@git ls-files 'src/*.cpp' | xargs -P $(JOBS) -n 4 clang-tidy -p $(BUILD) --quiet

install: build ## install to PREFIX (default /usr/local)
	@cmake --install $(BUILD) --prefix $(or $(PREFIX),/usr/local)

clean: ## remove what was built (models stay)
	@rm -rf build
