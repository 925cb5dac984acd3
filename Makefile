# Two commands: `make demo` and `make test`. Both install what they need and reuse what is there.
.PHONY: demo test setup setup-lab fmt bench clean

SHELL := /bin/bash

PROGRAMS := $(or $(CARGO_TARGET_DIR),target)/debug

demo: setup-lab
	@PODRAIL_BIN_PODRAIL=$(PROGRAMS)/podrail PODRAIL_BIN_PODRAIL_LAB_AGENT=$(PROGRAMS)/podrail-lab-agent \
		$(PROGRAMS)/xtask demo

test: setup
	@scripts/test.sh

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
