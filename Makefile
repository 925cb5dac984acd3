# Two commands: `make demo` and `make test`. Both install what they need and reuse what is there.
.PHONY: demo test test-long setup setup-lab fmt bench clean

SHELL := /bin/bash

PROGRAMS := $(or $(CARGO_TARGET_DIR),target)/debug

# make demo GPUS=0,3,5,6: another split of the GPUs between the two jobs.
GPUS := 2,3,4,5
demo: setup-lab
	@PODRAIL_BIN_PODRAIL=$(PROGRAMS)/podrail PODRAIL_BIN_PODRAIL_CNI=$(PROGRAMS)/podrail-cni \
		PODRAIL_BIN_STANDIN_KUBELET=$(PROGRAMS)/standin-kubelet \
		PODRAIL_BIN_STANDIN_GPU_PLUGIN=$(PROGRAMS)/standin-gpu-plugin \
		PODRAIL_BIN_PODRAIL_LAB_AGENT=$(PROGRAMS)/podrail-lab-agent \
		$(PROGRAMS)/xtask demo --gpus $(GPUS)

test: setup
	@scripts/test.sh

# Everything that `make test` has, and the long scenarios with containers on virtual nodes.
test-long: setup
	@TEST_OPTIONS=--include-ignored scripts/test.sh

setup:
	@scripts/setup.sh

setup-lab: setup
	@echo "==> building (minutes the first time)"
	@cargo build --quiet --workspace
	@$(PROGRAMS)/xtask lab setup

bench: setup-lab
	@$(PROGRAMS)/xtask bench

fmt:
	@cargo fmt --all

clean:
	@cargo clean
