# mqtick: every task of this checkout. `make` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
export PATH := $(shell . scripts/env.sh && printf '%s' "$$PATH")

PYTHON_BIN := .venv/bin/python
PYTEST := $(PYTHON_BIN) -m pytest
ROOMS := protocol mqtt pins service timeserver client recording analysis lab
# folders of programs that are not rooms
FOLDERS := $(sort $(dir $(wildcard bench/*.py demo/*.py broker/rtl/sim/*.py broker/rtl/formal/*.py \
  broker/conformance/*.py broker/tests/harness/*.py broker/bpf/*.py)))
BENCHES := arrival time-error cost report-speed fleet
FUZZ_SECONDS ?= 60
SCENARIOS ?= 100000
BROKER_UNDER_TEST ?= mosquitto
SCRIPTS ?= 5000
FIRST ?= 0

# Two set-ups at once would write to one .venv.
.NOTPARALLEL:

.PHONY: help
help: ## list the targets
	@sed -nE 's/^# -+ ([^-]+) -+$$/\1/p; s/^([a-z][a-z0-9%-]*):.*## (.*)/\1\t\2/p' Makefile | \
	  while IFS=$$'\t' read -r name text; do \
	    if [ -n "$$text" ]; then printf '  make %-23s %s\n' "$${name/\%/NAME}" "$$text"; else printf '\n%s:\n' "$$name"; fi; \
	  done

# ---- see it work --------------------------------------------------------------------------------
.PHONY: demo demo-sync demo-bench demo-hardware demo-broker demo-accelerate
demo: demo-sync demo-bench ## watch clients find the time, then measure them on a simulated bench
demo-sync: setup-demo ## the first part: three wrong clocks find the time
	@$(PYTHON_BIN) -m demo.sync
demo-bench: setup-demo ## the second part: 2 to 100 subscribers; FULL=1: up to 600, HOLD=1: for your own runs
	@$(PYTHON_BIN) -m demo.simulated_bench $(if $(filter 1,$(FULL)),--full) $(if $(filter 1,$(HOLD)),--hold)
demo-hardware: setup-demo model-rtl ## the hardware broker without an FPGA: time through its RTL, then 2 to 600 subscribers
	@$(PYTHON_BIN) -m demo.hardware
demo-broker: setup-demo broker-programs ## our broker beside Mosquitto: the time through it, then 2 to 100 subscribers
	@$(PYTHON_BIN) -m demo.software_broker
demo-accelerate: setup-demo broker-programs accelerate ## MQTT-SN past the broker, in the kernel: 100 subscribers with and without (root)
	@$(PYTHON_BIN) -m demo.accelerate

# ---- set up -------------------------------------------------------------------------------------
.PHONY: setup venv setup-demo setup-test setup-slow setup-check setup-drivers setup-ansible \
  setup-fleet-test setup-rtl setup-broker setup-accelerate
setup: setup-check setup-slow ## everything that demo, test and check need
venv: setup-check ## the Python parts only, in .venv
setup-demo setup-test setup-slow setup-check: setup-%:
	@scripts/setup.sh $*
setup-drivers: ## software by other authors (drivers, allantools) to compare with, in .venv-drivers
	@scripts/drivers.sh
setup-ansible: ## Ansible for your own fleet, in .venv-ansible
	@scripts/ansible.sh use
setup-fleet-test: ## the same, plus its linter and what fleet-test needs to make its hosts (root)
	@scripts/ansible.sh test
setup-rtl: setup-test ## what simulates, builds and proves the hardware broker, in .venv-rtl
	@scripts/rtl.sh
setup-accelerate: setup-broker ## what builds the data plane in the kernel: clang, and libbpf's headers
	@scripts/clang.sh
setup-broker: ## what builds the broker: Rust, and the crates' versions
	@scripts/rust.sh
.PHONY: lint-rtl
lint-rtl: setup-rtl ## Verilator's opinion of the hardware broker's RTL
	@$(MAKE) --no-print-directory -C broker/rtl lint

# ---- check and test -----------------------------------------------------------------------------
.PHONY: check lint lint-ansible format mypy imports docs test test-busy test-slow test-alone test-fresh test-arm64 \
  test-adversary test-below test-conformance test-rtl test-rtl-long test-broker test-broker-loom test-broker-miri fuzz
check: lint lint-ansible mypy imports docs ## style, types, imports between rooms, commands in the documents

lint: setup-check
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	@if command -v shellcheck >/dev/null; then set -x; shellcheck -x scripts/*.sh packaging/*.sh tests/fresh/run.sh .ci/run ansible/roles/tuning/files/mqtick-tuning; \
	  else echo 'shellcheck is not installed: the scripts were not checked'; fi

lint-ansible: export ANSIBLE_COLLECTIONS_PATH := $(CURDIR)/.venv-ansible/collections
lint-ansible: setup-fleet-test
	cd ansible && PATH="$(CURDIR)/.venv-ansible/bin:$$PATH" ansible-lint
	.venv-ansible/bin/ansible-playbook --syntax-check -i ansible/examples/inventory.yml ansible/playbooks/*.yml

format: setup-check ## let ruff correct the style
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

mypy: setup-check
	.venv/bin/mypy $(ROOMS:%=%/mqtick) $(FOLDERS)

imports: setup-check
	.venv/bin/lint-imports

docs: setup-check
	$(PYTEST) -q tests/test_docs.py

FAST_TESTS := $(PYTEST) -n 2 --dist loadfile -m 'not slow and not steers_clock and not fleet and not rtl and not broker'

test: setup-test ## all tests that take less than a second each
	$(FAST_TESTS)
	@if ! command -v cargo >/dev/null; then echo "not run: the broker's unit tests, since cargo is not installed (make setup-broker)"; \
	elif [ ! -d broker/server/target/debug/deps ]; then \
	  echo "not run: the broker's unit tests, since to build its crates takes minutes (make test-broker does it once)"; \
	else set -x; cd broker/server && cargo test --locked --quiet --lib; fi
	@echo 'not run: the slow tests (make test-slow test-alone), the hardware broker in simulation (make test-rtl),'
	@echo 'the software broker as a whole (make test-broker)'

# The loops end with the shell that started them.
test-busy: setup-test ## the same, while a loop keeps each core busy: none may depend on a quiet machine
	for core in $$(seq $$(nproc)); do while kill -0 $$$$; do :; done 2>/dev/null & done; $(FAST_TESTS)

# A file's tests stay together, because they share things. Those that judge delays follow one by one.
# The test that steers this machine's clock runs last and alone: a step upsets every other one.
test-slow: setup-slow setup-drivers ## the long ones that may share the machine; then make test-alone
	MQTICK_DRIVERS=required $(PYTEST) -n 3 --dist loadfile -m 'slow and not alone and not steers_clock and not fleet and not broker'
test-alone: setup-slow setup-drivers setup-broker ## those that need it for themselves; MQTICK_STEER_CLOCK=1 adds those that move its clock
	cd broker/server && cargo build --locked --release -p mqtick-broker
	MQTICK_DRIVERS=required $(PYTEST) -m 'alone and not steers_clock and not fleet'
	@if [ "$${MQTICK_STEER_CLOCK:-0}" = 1 ]; then set -x; $(PYTEST) -m steers_clock tests; \
	  else echo 'not run: the tests that set the clock of this machine (MQTICK_STEER_CLOCK=1)'; fi

test-fresh: ## make demo and make test in minimal Debian 12 and 13: SYSTEMS=trixie-user for one (root)
	$(SUDO:sudo=sudo -E) tests/fresh/run.sh $(SYSTEMS)

test-arm64: setup-check ## the suites of protocol and client on an emulated Debian arm64 (root)
	$(SUDO) scripts/arm64.sh

test-adversary: setup-test ## a hostile broker: SCENARIOS (100000) random ones in virtual time, FIRST=0
	$(PYTHON_BIN) tests/adversary/search.py --scenarios $(SCENARIOS) --first $(FIRST)

test-below: setup-test ## a hostile broker with a TCP stack of its own (root): SCRIPTS (5000) random ones, FIRST=0
	$(SUDO) $(PYTHON_BIN) tests/adversary/search_below.py --scripts $(SCRIPTS) --first $(FIRST)

test-conformance: setup-test ## the statements of MQTT 3.1.1 and 5: BROKER_UNDER_TEST=mosquitto, or mqtick=PATH
	$(PYTEST) -n 4 broker/conformance --broker $(BROKER_UNDER_TEST)

test-rtl: setup-rtl ## the hardware broker: lint, proofs, and in simulation vectors, random traffic
	$(PYTHON_BIN) -m broker.rtl.formal.prove
	.venv-rtl/bin/python broker/rtl/tests/run.py

test-rtl-long: setup-rtl ## the same with more traffic, many seeds and other sizes
	.venv-rtl/bin/python broker/rtl/tests/run.py --long
	$(PYTHON_BIN) -m broker.rtl.sim.endurance

fuzz: setup-test ## throw random octets at everything that reads foreign input, for FUZZ_SECONDS (60)
	@$(PYTHON_BIN) -m pip install --quiet --disable-pip-version-check -c constraints.txt atheris \
	  || echo 'There is no atheris for this Python and processor: Hypothesis is used instead.'
	$(PYTHON_BIN) tests/fuzz/fuzz_rooms.py $(FUZZ_SECONDS)

# ---- measure ------------------------------------------------------------------------------------
.PHONY: bench
bench: $(BENCHES:%=bench-%) ## all benchmarks in turn, except bench-disciplined, which moves the clock, and those that need the RTL or Rust
bench-fleet: setup-fleet-test
bench-hardware: model-rtl
bench-brokers bench-residence bench-join bench-join-time bench-accelerate bench-load: broker-programs
bench-accelerate: accelerate
bench-load: setup-test setup-broker
	cd broker/server && cargo build --locked --release -p mqtick-clients
	$(PYTHON_BIN) -m bench.load $(ARGS)
bench-join: setup-test
	cd broker/server && cargo build --locked --release -p mqtick-join --example bare_relay
	$(PYTHON_BIN) -m bench.join $(ARGS)
bench-%: setup-test ## one benchmark: bench/NAME.py, written with - instead of _; ARGS="--short", for example
	$(PYTHON_BIN) -m bench.$(subst -,_,$*) $(ARGS)

# ---- the broker ---------------------------------------------------------------------------------
.PHONY: broker-programs broker-package test-broker-package accelerate test-accelerate test-accelerate-kernels
ACCELERATE_OBJECT := $(CURDIR)/build/bpf/accelerate.o
# Without the multiarch folder, the kernel's headers lack asm/.
BPF_FLAGS = -O2 -g -target bpf -mcpu=v3 -Wall -Wextra -Werror -I/usr/include/$(shell $(CC) -print-multiarch) \
  -fdebug-compilation-dir=/mqtick
$(ACCELERATE_OBJECT): $(wildcard broker/bpf/*.[ch]) | setup-accelerate
	@mkdir -p $(@D)
	$(or $(shell command -v clang),clang-14) $(BPF_FLAGS) -c broker/bpf/accelerate.bpf.c -o $@
accelerate: $(ACCELERATE_OBJECT) ## mqtick-accelerate with the data plane in the kernel, in broker/server/target/release
	cd broker/server && MQTICK_ACCELERATE_OBJECT=$(ACCELERATE_OBJECT) cargo build --locked --release \
	  -p mqtick-accelerate --features kernel
# What was just built, whatever else is there: it fails where the kernel's data plane does not start.
KERNELS_PYTEST = MQTICK_ACCELERATE=$(CURDIR)/broker/server/target/debug/mqtick-accelerate $(PYTEST) -q
test-accelerate: setup-test $(ACCELERATE_OBJECT) ## the data plane in the kernel, in network namespaces (root)
	cd broker/server && MQTICK_ACCELERATE_OBJECT=$(ACCELERATE_OBJECT) cargo clippy --locked \
	  -p mqtick-accelerate --features kernel --all-targets -- -D warnings
	cd broker/server && MQTICK_ACCELERATE_OBJECT=$(ACCELERATE_OBJECT) cargo build --locked \
	  -p mqtick-accelerate --features kernel --example kernel_rules --bin mqtick-accelerate
	cd broker/server && cargo build --locked -p mqtick-broker
	$(KERNELS_PYTEST) $(addprefix tests/test_accelerate_,kernel.py ways.py alone.py flood.py queue.py)
	$(KERNELS_PYTEST) $(addprefix tests/test_accelerate,.py _feed.py _udp.py _theirs.py) -k "kernel or bridge"
test-accelerate-kernels: broker-programs accelerate ## the same programs on the kernels of Debian 12 and 13, under qemu (a minute; root)
	scripts/accelerate-kernels.sh
broker-programs: setup-broker ## mqtick-broker, mqtick-join and mqtick-load, in broker/server/target/release
	cd broker/server && cargo build --locked --release -p mqtick-broker -p mqtick-join -p mqtick-load
broker-package: ## a Debian package of these and mqtick-accelerate, linked statically, in build/: ARCH=arm64, armhf (needs root, debootstrap)
	@scripts/broker-package.sh $(ARCH)
test-broker-package: ## the same twice, in two folders: whether both are equal octet by octet
	@packaging/twice.sh scripts/broker-package.sh $(ARCH)
# What MQTT.js needs, a client of other authors: package.json says which version of each.
build/clients/node_modules: broker/tests/clients/package.json
	rm -rf build/clients && mkdir -p build/clients && cp $< build/clients/
	cd build/clients && npm install --no-audit --no-fund --ignore-scripts --loglevel=error \
	  || echo 'npm could not install MQTT.js: the tests with it are left out'
	if [ -d $@ ]; then touch $@; fi
# An MQTT-SN gateway of other authors, if there is a Go that is new enough: go.mod says which.
build/bisquitt: tests/gateway/go.mod
	rm -rf build/gateway && mkdir -p build/gateway && cp $< build/gateway/
	cd build/gateway && GOFLAGS=-mod=mod go build -o $(CURDIR)/$@ github.com/energostack/bisquitt/cmd/bisquitt \
	  || echo 'go could not build Bisquitt: the tests with it are left out'
test-broker: setup-test setup-broker ## the broker: style, unit tests, MQTT's statements one by one, others' clients, hostile ones
	cd broker/server && cargo fmt --check && cargo clippy --locked -- -D warnings
	cd broker/server && cargo test --locked --quiet
	cd broker/server && cargo build --locked -p mqtick-broker -p mqtick-join -p mqtick-load
	@# Alone, since features of its crates would have the others compiled again.
	cd broker/server && cargo build --locked -p mqtick-clients
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory build/clients/node_modules; \
	  else echo 'not run: the tests with MQTT.js, since npm is not installed'; fi
	@if command -v go >/dev/null; then $(MAKE) --no-print-directory build/bisquitt; \
	  else echo 'not run: the tests with Bisquitt, since go is not installed'; fi
	$(PYTEST) -q -n 4 --dist loadfile broker/conformance --broker mqtick=broker/server/target/debug/mqtick-broker \
	  --udp mqtick=broker/server/target/debug/mqtick-broker
	$(PYTEST) -q -n 4 --dist load $(addprefix broker/conformance/tests/test_,qos.py session.py) \
	  --broker mqtick=broker/server/target/debug/mqtick-broker --kept
	$(PYTEST) -q -n 4 --dist loadfile -m 'broker and not alone' broker/tests tests
test-broker-loom: setup-broker ## what the broker's threads hand each other, in every order that loom can think of
	cd broker/server && cargo test --locked --quiet -p mqtick-threads
test-broker-miri: setup-broker ## the broker's crates that parse, in Miri, which finds undefined behaviour (nightly Rust)
	@if cargo +nightly miri --version >/dev/null 2>&1; then set -x; cd broker/server && \
	  cargo +nightly miri test --locked -p mqtick-packet -p mqtick-topics -p mqtick-access \
	  --test refused --test names --test retained --test tree --test rules; \
	  else echo 'not run: there is no Miri here (rustup toolchain install nightly --component miri)'; fi

# ---- the hardware broker ------------------------------------------------------------------------
.PHONY: synth formal-rtl test-board model-rtl test-model
synth: setup-rtl ## the hardware broker on the published part, and a bitstream for a Colorlight 5A-75B
	$(PYTHON_BIN) -m bench.synth $(ARGS)
test-board: setup-rtl ## frames through LiteEth in simulation: the Colorlight 5A-75B with an echo, 10 Gb/s with the broker
	.venv-rtl/bin/python broker/rtl/boards/colorlight_5a_75b/tests/run.py
	.venv-rtl/bin/python broker/rtl/boards/xgmii/tests/run.py
formal-rtl: setup-rtl ## proofs about the hardware broker: PROOFS="control fifo" for some of them
	$(PYTHON_BIN) -m broker.rtl.formal.prove $(PROOFS)
model-rtl: setup-rtl ## the broker's RTL as a program: build/rtl/model/mqtick-broker-model
	@$(MAKE) --no-print-directory -f broker/rtl/sim/model/Makefile
test-rtl: test-model
test-model: setup-test model-rtl
	$(PYTEST) -m rtl tests/test_hardware_model.py

# ---- the fleet ----------------------------------------------------------------------------------
RELEASE ?= bookworm

.PHONY: wheelhouse collection fleet-test
wheelhouse: setup-ansible ## what hosts without Internet need: TARGETS=trixie-arm64,... (all) BENCH=1
	@.venv-ansible/bin/python scripts/wheelhouse.py $(if $(TARGETS),--targets "$(TARGETS)") $(if $(filter 1,$(BENCH)),--bench)
collection: setup-ansible ## the Ansible collection as one file, in build/
	rm -f build/mqtick-fleet-*.tar.gz
	.venv-ansible/bin/ansible-galaxy collection build --force --output-path build ansible
fleet-test: setup-test setup-fleet-test ## the collection on real systemd hosts, RELEASE=bookworm (root; 15 minutes)
	MQTICK_FLEET_RELEASE=$(RELEASE) $(PYTEST) -n 2 --dist loadfile -m fleet ansible/tests --ignore ansible/tests/test_packages.py

# ---- put it on a machine ------------------------------------------------------------------------
# Only what is on make's command line counts: desktops export USERNAME, for one. The recipe's
# shell takes the values from its environment, so that a space or a quote in one stays what it is.
VALUES := BROKER CA USERNAME PASSWORD_FILE KEYS CHRONY NUMBER
given = $(filter command,$(firstword $(origin $1)))
flag = --$(shell printf '%s' $1 | tr A-Z_ a-z-) "$$$1"
INSTALL_FLAGS = $(foreach value,$(VALUES),$(if $(call given,$(value)),$(call flag,$(value))))
SUDO = $(if $(filter-out 0,$(shell id -u)),sudo)

.PHONY: packages test-packages install-server install-client uninstall
packages: setup-check ## Debian packages of client, time server, and bench with reports, for any architecture, in build/
	@packaging/programs.sh
test-packages: setup-test ## whether two builds are equal, and each package on a blank host: RELEASE=bookworm (root)
	command -v systemd-nspawn debootstrap >/dev/null || scripts/debian.sh install systemd-container debootstrap openssh-client
	MQTICK_FLEET_RELEASE=$(RELEASE) $(PYTEST) ansible/tests/test_packages.py
install-server: ## time server as a service: BROKER=mqtt://HOST [CA= USERNAME= PASSWORD_FILE= KEYS= NUMBER=]
	@$(SUDO) scripts/install.sh server $(INSTALL_FLAGS)
install-client: ## client as a service: the same, and CHRONY=no to leave chrony alone
	@$(SUDO) scripts/install.sh client $(INSTALL_FLAGS)
uninstall: ## remove both from this machine
	@$(SUDO) scripts/install.sh uninstall

.PHONY: clean
clean: ## remove caches and build products; .venv stays
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(ROOMS) ansible bench broker tests -name __pycache__ -type d -prune -exec rm -rf {} +
