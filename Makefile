# `make demo` shows Ringfence at work, `make test` is what continuous integration runs.
export PATH := $(PATH):$(HOME)/.cargo/bin
TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/x86_64-unknown-linux-gnu/release/ringfence
SHIM := containerd-shim-ringfence-v1
PREFIX ?= /usr/local

.PHONY: help build demo test fuzz bench exercise soak soak-checkpoints ltp packetdrill clients install clean

help:
	@echo "make demo     build, then watch unmodified programs run in a sandbox"
	@echo "make test     everything that continuous integration checks"
	@echo "make fuzz     whatever takes input from anybody, 10 seconds each (SECONDS=n for another length, TARGETS=... for some)"
	@echo "make build    the static binaries, $(RELEASE) and $(SHIM) beside it, their symbols in files ending in .debug"
	@echo "make install  put them into $(PREFIX)/bin, with manual pages and completions; their symbols into $(PREFIX)/lib/debug"
	@echo "make bench    measure against native, with other runtimes beside when they are installed"
	@echo "make exercise SECONDS=60   random operations on files against a model, and sandboxes killed while they write"
	@echo "make soak     an hour of mixed programs, many at once (SECONDS=n for another length)"
	@echo "make soak-checkpoints  half an hour of programs saved and restored at random moments, and 1,000 steps undone"
	@echo "make clients  Docker, containerd and Podman driving the runtime"
	@echo "make ltp      the Linux Test Project's syscall tests"
	@echo "make packetdrill DIR=CHECKOUT  packetdrill's TCP scripts, from a built checkout"
	@echo "make clean    remove what was built"

build:
	@tools/prerequisites build
	cargo build --release -p ringfence -p $(SHIM)
	@tools/split-symbols $(RELEASE) $(dir $(RELEASE))$(SHIM)

demo:
	@tools/prerequisites demo
	@$(MAKE) --no-print-directory build
	@demo/run $(RELEASE)

test:
	@tools/prerequisites test
	@tests/all

# A panic fails, and leaves its input in fuzz/regressions, which `make test` runs again.
fuzz:
	@tools/prerequisites build
	cargo run -q -p fuzz -- --seconds $(or $(SECONDS),10) $(TARGETS)

bench: build
	bench/run $(RELEASE)

exercise: build
	tests/exercise/run --runtime $(RELEASE)

soak: build
	tests/soak/run --runtime $(RELEASE)

soak-checkpoints: build
	tests/checkpoint/run --runtime $(RELEASE) --rounds 34 test_session_undo_is_exact
	tests/checkpoint/soak --runtime $(RELEASE)

ltp: build
	tests/ltp/run --runtime $(RELEASE)

packetdrill: build
	@test -n "$(DIR)" || { echo "make packetdrill: say where packetdrill is built: DIR=CHECKOUT"; exit 1; }
	tests/packetdrill/run --runtime $(RELEASE) $(DIR)

clients: build
	@tools/prerequisites clients
	tests/clients/run --runtime $(RELEASE)

install: build
	@tools/install-files $(dir $(RELEASE)) $(DESTDIR)$(PREFIX)

clean:
	cargo clean
