# One entry for every chore. `make` alone lists them. Works as root and as an ordinary user; needs neither Docker nor a daemon.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help build run wasm escape test check deny bench fuzz dist install clean

TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
# The six programs lie beside each other here, whatever the target triple: the same path in every document.
PROGRAMS := $(TARGET_DIR)/blastbox
SHIPPED := $(TARGET_DIR)/shipped
TRIPLE = $(or $(CARGO_BUILD_TARGET),$(shell rustc -vV | sed -n 's/^host: //p'))
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local
DESTDIR ?=
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
DIST = blastbox-$(VERSION)-$(TRIPLE)

help: ## list the chores
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The programs, built by profile $(1) into directory $(2).
NAMES := blastbox blastbox-full blastbox-warden blastbox-agent blastbox-egress blastbox-gvisor
define programs
	@tools/need.sh cc=build-essential
	@BLASTBOX_TRUSTED_CORE="$$(cargo xtask tcb --line)" cargo build --profile $(1) $(foreach name,$(filter-out blastbox-full,$(NAMES)),--package $(name))
	@install -d $(2)
	@install -m 755 $(foreach name,$(NAMES),$(TARGET_DIR)/$(TRIPLE)/$(1)/$(name)) $(2)
	@# It does its first work before its C library: one whose compiler did not keep to that is found here, and not by a user.
	@$(2)/blastbox run --help > /dev/null
	@echo "built: $(patsubst $(CURDIR)/%,%,$(2))/{blastbox,blastbox-full,blastbox-warden,blastbox-agent,blastbox-egress,blastbox-gvisor}"
endef

build: ## build the six programs into target/blastbox/
	$(call programs,release,$(PROGRAMS))

# The same for people who keep them: built with more care, which takes its time.
.PHONY: shipped
shipped:
	$(call programs,dist,$(SHIPPED))

run: build ## build, then run hostile code in a box and show what stopped it
	@tools/need.sh python3=python3
	@tools/demo.sh $(PROGRAMS)/blastbox

# Workers and compiler are built apart from each other: together they would share their features, and the worker would have a compiler, and
# the worker of modules what only components need.
wasm: ## build the tier wasm with its guests into target/blastbox/wasm/ (minutes, once); METERED=all: Python that counts its work, too; DATA=yes: python-data
	@tools/need.sh cc=build-essential python3=python3 npm=npm
	@cargo build --profile wasm --package blastbox-wasm --bin blastbox-wasm
	@install -D -m 755 -t $(PROGRAMS)/wasm $(TARGET_DIR)/$(TRIPLE)/wasm/blastbox-wasm
	@cargo build --profile wasm --package blastbox-wasm --features components --bin blastbox-wasm-component
	@install -D -m 755 -t $(PROGRAMS)/wasm $(TARGET_DIR)/$(TRIPLE)/wasm/blastbox-wasm-component
	@cargo build --profile wasm --package blastbox-wasm --features compiler --bin blastbox-wasm-compile
	@install -D -m 755 -t $(PROGRAMS)/wasm $(TARGET_DIR)/$(TRIPLE)/wasm/blastbox-wasm-compile
	@METERED=$(METERED) DATA=$(DATA) tools/guests.sh $(PROGRAMS)/wasm $(TARGET_DIR)/guests
	@echo "built: $(patsubst $(CURDIR)/%,%,$(PROGRAMS))/wasm"

# The daemon once more, with places at which tests stop and kill it. Never shipped: it lies in a directory of its own.
.PHONY: failpoints
failpoints:
	@cargo build --package blastbox --features failpoints
	@install -d $(TARGET_DIR)/failpoints
	@install -m 755 $(TARGET_DIR)/$(TRIPLE)/debug/blastbox $(TARGET_DIR)/$(TRIPLE)/debug/blastbox-full $(PROGRAMS)/blastbox-warden $(PROGRAMS)/blastbox-agent $(TARGET_DIR)/failpoints

# The warden once more, without one layer each, for the layer proof, and with an agent that lies. Never shipped: each lies in a directory of its own.
LAYERS := seccomp landlock mounts network pids scratch overlay users capabilities processes descriptors
.PHONY: lifted
lifted:
	@for layer in $(LAYERS); do \
	  cargo build --quiet --profile lifted --package blastbox-warden --features lift-$$layer; \
	  install -d $(TARGET_DIR)/lifted/$$layer; \
	  install -m 755 $(PROGRAMS)/blastbox $(PROGRAMS)/blastbox-full $(PROGRAMS)/blastbox-agent $(PROGRAMS)/blastbox-egress $(PROGRAMS)/blastbox-gvisor \
	    $(TARGET_DIR)/$(TRIPLE)/lifted/blastbox-warden $(TARGET_DIR)/lifted/$$layer; \
	done
	@cargo build --quiet --profile lifted --package blastbox-warden --features lying-agent
	@install -d $(TARGET_DIR)/lifted/liar
	@install -m 755 $(PROGRAMS)/blastbox $(PROGRAMS)/blastbox-agent $(PROGRAMS)/blastbox-egress $(PROGRAMS)/blastbox-gvisor \
	  $(TARGET_DIR)/$(TRIPLE)/lifted/blastbox-warden $(TARGET_DIR)/lifted/liar

# The agent once more, with places at which it dies in a machine, for tests of machines that are lost. Never shipped: it lies in a
# directory of its own.
.PHONY: mortal
mortal:
	@cargo build --quiet --profile lifted --package blastbox-agent --features failpoints
	@install -d $(TARGET_DIR)/mortal
	@install -m 755 $(PROGRAMS)/blastbox $(PROGRAMS)/blastbox-full $(PROGRAMS)/blastbox-warden $(PROGRAMS)/blastbox-egress $(PROGRAMS)/blastbox-gvisor \
	  $(TARGET_DIR)/mortal
	@install -m 755 --strip $(TARGET_DIR)/$(TRIPLE)/lifted/blastbox-agent $(TARGET_DIR)/mortal

# Tiers that are there: gVisor where it can be fetched, Wasm where `make wasm` was, virtual machines where there is QEMU and a kernel
# (`make test` fetches both). What is missing is said in the matrix. It fails where something came out, and
# where more than 8 cells of a column prove nothing: as many as the tests let pass on a busy host. They are named.
escape: build lifted ## try to break out of boxes in every tier of this host, and print what held: target/escape.html
	@tools/need.sh python3=python3
	@tools/runsc.sh $(PROGRAMS)
	@tools/machine.sh $(PROGRAMS) $(TARGET_DIR)/kernel $(TARGET_DIR)/machine
	@$(PROGRAMS)/blastbox escape --machine-image python --store $(TARGET_DIR)/machine --lifted $(TARGET_DIR)/lifted \
	  --state-dir $(TARGET_DIR)/escape-state --tolerate 8 --html $(TARGET_DIR)/escape.html
	@echo "page: $(patsubst $(CURDIR)/%,%,$(TARGET_DIR))/escape.html"

# What is tested beside what every program is built with. As `xtask/src/test/programs.rs` has it.
TESTED := --features blastbox-wasm/components,blastbox-wasm/compiler

test: build wasm failpoints lifted mortal ## install what the tests need, run them all, sum up
	@tools/need.sh qemu-system-x86_64=qemu-system-x86 busybox=busybox-static unsquashfs=squashfs-tools
	@tools/kernel.sh $(TARGET_DIR)/kernel
	@tools/machine.sh $(PROGRAMS) $(TARGET_DIR)/kernel $(TARGET_DIR)/machine
	@tools/need.sh python3=python3 strace=strace ip=iproute2 pgrep=procps node=nodejs npm=npm curl=curl git=git ipython3=ipython3
	@# By itself: where there is no such package, the others come all the same. A small program in Go.
	@tools/need.sh gron=gron
	@[ -d /usr/lib/python3/dist-packages/matplotlib ] || tools/need.sh never-there=python3-matplotlib
	@[ -d /usr/lib/python3/dist-packages/pandas ] || tools/need.sh never-there=python3-pandas
	@$(call tarball,$(PROGRAMS))
	@tools/component.sh $(TARGET_DIR)/component
	@# Fetching and making takes about as long as compiling the tests, and hardly more than one processor: side by side.
	@{ tools/e2b.sh $(TARGET_DIR)/e2b && tools/registry.sh $(TARGET_DIR)/registry && tools/images.sh $(PROGRAMS) $(TARGET_DIR)/images && \
	  tools/runsc.sh $(PROGRAMS); } & made=$$!; cargo test --workspace --no-run $(TESTED); built=$$?; wait $$made && exit $$built
	@BLASTBOX_BIN_DIR=$(PROGRAMS) BLASTBOX_DIST=$(TARGET_DIR)/$(DIST).tar.gz cargo xtask test

check: ## formatting, lints, house rules, dependencies
	@cargo fmt --all --check
	@cargo fmt --manifest-path fuzz/Cargo.toml --check
	@cargo clippy --workspace --all-targets --all-features -- -D warnings
	@cargo check --quiet --manifest-path fuzz/Cargo.toml
	@cargo xtask check
	@$(MAKE) deny

deny:
	@cargo deny --version >/dev/null 2>&1 || { echo "installing cargo-deny: takes minutes, once"; cargo install --locked --quiet cargo-deny; }
	@cargo deny --workspace --all-features check --hide-inclusion-graph bans licenses sources

# A row is about the guest with pandas.
bench: DATA = yes
bench: shipped wasm ## measure against the bare process and against peers
	@tools/need.sh bwrap=bubblewrap crun=crun runc=runc slirp4netns=slirp4netns pasta=passt ip=iproute2 python3=python3 ipython3=ipython3
	@[ -n "$$(ls /usr/lib/python3/dist-packages/seccomp*.so 2>/dev/null)" ] || tools/need.sh never-there=python3-seccomp
	@tools/runsc.sh $(SHIPPED)
	@ln -sfn $(PROGRAMS)/wasm $(SHIPPED)/wasm
	@tools/e2b.sh $(TARGET_DIR)/e2b
	@cargo build --release --quiet --package blastbox-benches
	@# Where it finds the programs that it measures as an installed one finds its own.
	@install -D -m 755 -t $(TARGET_DIR)/bench/bin $(TARGET_DIR)/$(TRIPLE)/release/blastbox-bench
	@install -d $(TARGET_DIR)/bench/libexec && ln -sfn $(SHIPPED) $(TARGET_DIR)/bench/libexec/blastbox
	@BLASTBOX_BIN_DIR=$(SHIPPED) $(TARGET_DIR)/bench/bin/blastbox-bench

# cargo-fuzz sets RUSTFLAGS, which replaces the flags of .cargo/config.toml: the address sanitizer cannot be linked statically.
fuzz: ## fuzz each parser of foreign bytes for FUZZ_SECONDS (60)
	@tools/need.sh c++=build-essential
	@cargo +nightly --version >/dev/null 2>&1 || { echo "fuzzing needs a nightly compiler: rustup toolchain install nightly"; exit 1; }
	@cargo fuzz --version >/dev/null 2>&1 || { echo "installing cargo-fuzz: takes minutes, once"; cargo install --locked --quiet cargo-fuzz; }
	@for target in $$(cargo fuzz list); do \
	  echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
	  cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -timeout=5 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1; \
	done

# One tarball of the programs in directory $(1), with the tier wasm if it lies in directory $(2).
define tarball
rm -rf $(TARGET_DIR)/dist && tools/dist.sh $(1) $(TARGET_DIR)/dist/$(DIST) /usr/local $(2) && \
  tar --create --gzip --sort=name --owner=0 --group=0 --numeric-owner --directory $(TARGET_DIR)/dist --file $(TARGET_DIR)/$(DIST).tar.gz $(DIST)
endef

dist: shipped ## one tarball that runs on a machine without a toolchain: target/blastbox-VERSION-TRIPLE.tar.gz
	@$(call tarball,$(SHIPPED),$(PROGRAMS)/wasm)
	@echo "built: $(patsubst $(CURDIR)/%,%,$(TARGET_DIR))/$(DIST).tar.gz"

install: shipped ## put programs, pages, completions and unit into place: PREFIX (/usr/local), DESTDIR
	@tools/dist.sh $(SHIPPED) $(DESTDIR)$(PREFIX) $(PREFIX) $(PROGRAMS)/wasm
	@# What was copied looks otherwise than what was sealed: each box would hash it.
	@compile=$(DESTDIR)$(PREFIX)/libexec/blastbox/wasm/blastbox-wasm-compile; [ ! -x $$compile ] || $$compile seal $${compile%/*} > /dev/null || true
	@echo "installed beneath $(DESTDIR)$(PREFIX)"

clean: ## remove what was built
	@cargo clean --quiet
	@rm -rf fuzz/target fuzz/artifacts
