# Two commands: `make demo` and `make test`. Both install what they need and reuse what is there.
.PHONY: demo test setup setup-lab fmt bench clean

SHELL := /bin/bash

demo: setup-lab
	@cargo xtask demo

test: setup-lab
	@scripts/test.sh

setup:
	@scripts/setup.sh

setup-lab: setup
	@echo "==> building the project's own tool (xtask; minutes the first time)"
	@cargo build --quiet --package xtask
	@cargo xtask lab setup

bench: setup-lab
	@cargo xtask bench

fmt:
	@cargo fmt --all

clean:
	@cargo clean
