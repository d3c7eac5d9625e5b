# `make` lists the verbs. Everything runs from one virtual environment, .venv, which `make setup` keeps in line
# with requirements.lock. As root a verb installs the Debian packages that it needs; otherwise it names them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:

# The lab's name; several labs may be up at once.
LAB ?= default
# The settings of the last cluster-up, so that the other verbs use the same cluster.
-include build/lab/$(LAB).mk
HOSTS ?= 3
BROKERS_PER_HOST ?= 1
# What a new lab's hosts are: bookworm (Debian 12) or trixie (Debian 13); empty: bookworm.
IMAGE ?=
# An inventory of real hosts; empty: the lab's inventory.
INVENTORY ?=
COMMA := ,
ifneq ($(INVENTORY),)
ifeq ($(findstring $(COMMA),$(INVENTORY))$(wildcard $(INVENTORY)),)
$(error INVENTORY is $(INVENTORY), which is not there)
endif
endif
# The plan of `make plan` and `make apply`.
PLAN ?= build/plan.json
# Additional arguments for `python -m tools.release`, for example RELEASE_ARGS="--platform cp311-x86_64".
RELEASE_ARGS ?=
# Additional arguments for ansible-playbook, for example ANSIBLE_ARGS="--check --diff".
ANSIBLE_ARGS ?=
# The random walk of faults: the number of rounds, and the seed; empty: a new one each time.
ROUNDS ?= 50
SEED ?=
# Additional arguments for `python -m chaos walk`, for example CHAOS_ARGS="--only SIGKILL".
CHAOS_ARGS ?=
# Additional arguments for `python -m compare run`, for example COMPARE_ARGS="--scenario crash --system spark".
COMPARE_ARGS ?=
# Additional arguments for pytest, for example TEST_ARGS="-k isr -x".
TEST_ARGS ?=
# Additional arguments for `python -m tests.fuzz`, for example FUZZ_ARGS="--target request".
FUZZ_ARGS ?=
# Additional arguments for `python -m tools.platforms run`, for example PLATFORM_ARGS="--only trixie".
PLATFORM_ARGS ?=
# Additional arguments for `python -m bench.guard`, for example PERF_ARGS="--only fetch-1m".
PERF_ARGS ?=
# Additional arguments for `python -m bench.cost`, for example COST_ARGS="--only=metadata*".
COST_ARGS ?=

# Hosts get compiled code where this machine can compile it; 0: pure Python; 1: compiled, or nothing.
COMPILED ?=
WHEELS = $(if $(COMPILED),$(if $(filter 0,$(COMPILED)),--pure,--compiled))

BIN := $(CURDIR)/.venv/bin
PY := $(BIN)/python
PYSPARK = $(firstword $(wildcard $(CURDIR)/.venv/lib/python3*/site-packages/pyspark))
SHARED := /srv/landline/$(LAB)

export PATH := $(BIN):$(PATH)
export LANDLINE_LAB := $(LAB)
export BROKERS_PER_HOST
export PYTHONUNBUFFERED := 1

LAB_PACKAGES := systemd-container mmdebstrap nftables iproute2 openssh-client e2fsprogs util-linux
JAVA_PACKAGES := default-jre-headless maven
KERBEROS_PACKAGES := krb5-kdc krb5-admin-server python3-gssapi
COMPILE_PACKAGES := gcc python3-dev
COUNT_PACKAGES := valgrind
TEST_PACKAGES := $(LAB_PACKAGES) $(JAVA_PACKAGES) $(KERBEROS_PACKAGES) zookeeper libslf4j-java kcat procps chromium $(COMPILE_PACKAGES) $(COUNT_PACKAGES)

PLAN_FILE = $(abspath $(PLAN))

# Ansible, pytest and Spark's driver reach a lab's hosts only from inside its network.
INSIDE = $(if $(INVENTORY),,$(PY) -m lab enter $(LAB) --)
WITH_INVENTORY = $(if $(INVENTORY),ANSIBLE_INVENTORY=$(INVENTORY))

# A named lab is used and kept; without a name chaos creates a lab and destroys it.
CHAOS_LAB = $(if $(filter command line environment,$(origin LAB)),CHAOS_LAB=$(LAB))

# The same for comparisons; a round takes minutes.
COMPARE_LAB = $(if $(filter command line environment,$(origin LAB)),COMPARE_LAB=$(LAB))
COMPARE_ROUNDS = $(if $(filter command line environment,$(origin ROUNDS)),$(ROUNDS),6)

# Each object of Python's is an allocation that the sanitizer sees. What lives until the end is no leak.
SANITIZED = LD_PRELOAD=$$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1 PYTHONMALLOC=malloc TESTED_CODE=compiled

say = printf '\033[1;36m==> %s\033[0m\n' "$(1)"

.PHONY: help
help: ## List the verbs
	@printf '\033[1mLandline\033[0m: a Kafka-compatible broker on hosts of its own. Start with \033[1;32mmake cluster-up\033[0m.\n\n'
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "  \033[1;32m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nSettings: HOSTS=%s BROKERS_PER_HOST=%s LAB=%s INVENTORY=(the lab) ANSIBLE_ARGS= TEST_ARGS=\n' \
		'$(HOSTS)' '$(BROKERS_PER_HOST)' '$(LAB)'

.PHONY: setup
setup: ## Create .venv from the locked, hashed requirements (does nothing if it is up to date): LOCK=requirements-deploy.lock, only for deploying
	@LOCK=$(LOCK) tools/setup

# A cluster

.PHONY: cluster-up
cluster-up: setup ## Bring up HOSTS real systemd hosts with the whole cluster, check it, show it
	@tools/apt-ensure $(LAB_PACKAGES) $(JAVA_PACKAGES)
	@$(if $(filter 0,$(COMPILED)),true,tools/apt-ensure $(COMPILE_PACKAGES) || [ -z '$(COMPILED)' ])
	@$(PY) -m tools.wheelhouse $(WHEELS)
	@$(PY) -m pipeline.jars >/dev/null
	@mkdir -p build/lab $(SHARED)
	@$(PY) -m lab up --name $(LAB) --hosts $(HOSTS) $(if $(IMAGE),--image $(IMAGE)) --bind-ro $(PYSPARK):/opt/spark --bind $(SHARED):$(SHARED)
	@printf 'HOSTS ?= %s\nBROKERS_PER_HOST ?= %s\n' '$(HOSTS)' '$(BROKERS_PER_HOST)' >build/lab/$(LAB).mk
	@$(call say,deploying)
	@$(INSIDE) ansible-playbook deploy.yml $(ANSIBLE_ARGS)
	@$(call say,checking)
	@$(MAKE) smoke
	@$(MAKE) status

.PHONY: cluster-down
cluster-down: setup ## Destroy the lab: no process, mount, cgroup, namespace or file of it is left
	@$(PY) -m lab down --name $(LAB)
	@rm -rf --one-file-system build/lab/$(LAB).mk $(SHARED)

.PHONY: deploy
deploy: setup dev-build ## Run deploy.yml on the lab, or on INVENTORY's hosts; rolls running services
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook deploy.yml $(ANSIBLE_ARGS)

.PHONY: preflight
preflight: setup ## Look at all hosts as a deploy does before it changes anything, and name every fault
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/preflight.yml $(ANSIBLE_ARGS)

.PHONY: plan
plan: setup dev-build ## Show what a deploy would do with each broker, whether it may now, and how long it takes: PLAN=build/plan.json
	@mkdir -p build && rm -f '$(PLAN_FILE)'
	@code=0; $(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/plan.yml --check -e 'landline_plan_file=$(PLAN_FILE)' $(ANSIBLE_ARGS) || code=$$?; \
		[ ! -e '$(PLAN_FILE)' ] || $(PY) -m tools.plan_table '$(PLAN_FILE)'; exit $$code

.PHONY: apply
apply: setup ## Do what a plan says and nothing else: PLAN=build/plan.json (with the ANSIBLE_ARGS of make plan)
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/apply.yml -e 'landline_plan=$(PLAN_FILE)' $(ANSIBLE_ARGS)

.PHONY: restart
restart: setup ## Restart all brokers one at a time, watching the ISRs
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/restart.yml $(ANSIBLE_ARGS)

.PHONY: reboot
reboot: setup ## Reboot all hosts one at a time, as the cluster allows: ANSIBLE_ARGS='-e reboot_only_needed=true'
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/reboot.yml $(ANSIBLE_ARGS)

.PHONY: migrate
migrate: setup dev-build ## Let Landline take the place of Apache Kafka's brokers on INVENTORY's hosts, or back: TO=kafka
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/migrate.yml $(if $(TO),-e migrate_to=$(TO)) $(ANSIBLE_ARGS)

.PHONY: certificates
certificates: setup ## Renew the certificates of all hosts, while the brokers run
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/certificates.yml $(ANSIBLE_ARGS)

.PHONY: topics
topics: setup ## Bring about the topics and dynamic configs that the inventory lists, and show what is not as listed
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/topics.yml $(ANSIBLE_ARGS)

.PHONY: backup
backup: setup ## Back up the metadata tree with its ACLs into a local file, while the cluster runs: FILE=(build/backup/…)
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/backup.yml $(if $(FILE),-e 'broker_metadata_file=$(abspath $(FILE))') $(ANSIBLE_ARGS)

.PHONY: restore
restore: setup ## Restore the tree into a ZooKeeper that lost it, and start all brokers: FILE=backup
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/restore.yml -e 'broker_metadata_file=$(abspath $(or $(FILE),$(error give FILE=backup)))' $(ANSIBLE_ARGS)

# Bytes per second of each broker that moves of partitions may take; empty: landline_move_throttle of the inventory.
THROTTLE ?=
MOVES = $(if $(THROTTLE),-e landline_move_throttle=$(THROTTLE))

.PHONY: rebalance
rebalance: setup ## Move partitions so that each broker has its share: THROTTLE=(bytes per second) PAUSE=1 takes the moves back
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/rebalance.yml $(MOVES) $(if $(PAUSE),-e rebalance_pause=true) $(ANSIBLE_ARGS)

.PHONY: decommission
decommission: setup ## Move everything away from a host's brokers, and remove them: HOST=name THROTTLE=(bytes per second)
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/decommission.yml $(MOVES) -e decommission_host=$(or $(HOST),$(error give HOST=name)) $(ANSIBLE_ARGS)

.PHONY: replace
replace: setup dev-build ## Deploy a new machine in place of a dead host, and fill it: HOST=name THROTTLE=(bytes per second)
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/replace.yml $(MOVES) -e replace_host=$(or $(HOST),$(error give HOST=name)) $(ANSIBLE_ARGS)

.PHONY: support-bundle
support-bundle: setup ## Collect journals, configs and states of all hosts, without secrets, into build/support: SINCE=-24h
	@$(WITH_INVENTORY) $(INSIDE) ansible-playbook playbooks/support_bundle.yml $(if $(SINCE),-e '{"support_since": "$(SINCE)"}') $(ANSIBLE_ARGS)

.PHONY: status
status: setup ## Show hosts, brokers, controller, listeners and start-up times
	@$(WITH_INVENTORY) $(INSIDE) $(PY) tools/cluster_status.py

.PHONY: smoke
smoke: setup ## Check every service, port, unit, file and znode of the running cluster, and a round trip per broker
	@LANDLINE_SMOKE=1 $(WITH_INVENTORY) $(INSIDE) $(BIN)/pytest tests/smoke -q -p no:cacheprovider $(TEST_ARGS)

# Building and checking

.PHONY: wheelhouse
wheelhouse: setup ## Build the wheel and the offline wheelhouse for installing hosts
	@$(PY) -m tools.wheelhouse $(WHEELS)

# What verbs that deploy build before: the working tree for the lab, and for INVENTORY's hosts if they get it.
.PHONY: dev-build
dev-build: setup
	@$(if $(INVENTORY),$(WITH_INVENTORY) $(PY) -m tools.dev_build $(WHEELS) -- $(ANSIBLE_ARGS),$(PY) -m tools.wheelhouse $(WHEELS))

.PHONY: wheel
wheel: setup ## Build the broker's wheels into build/wheels: pure Python, and with compiled code where a C compiler is
	@$(PY) -m tools.wheels $(WHEELS)

.PHONY: compiled
compiled: setup ## Copy the checkout into build/compiled-checkout with its request path compiled, for tests there
	@$(PY) -m tools.compiled.checkout

.PHONY: fuzz-sanitized
fuzz-sanitized: setup ## Fuzz the compiled code under gcc's sanitizers of addresses and undefined behaviour: SECONDS=60 each (minutes to compile; FUZZ_ARGS="--target request")
	@$(PY) -m tools.compiled --out build/sanitized --optimize 1 --sanitize
	@$(PY) -m tools.compiled.checkout --of build/sanitized build/sanitized-checkout
	@cd build/sanitized-checkout && $(SANITIZED) $(PY) -m tests.fuzz --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(FUZZ_ARGS)

.PHONY: release
release: setup ## Build the archives of this version for hosts, with checksums and what is in them: build/release
	@$(PY) -m tools.release $(WHEELS) $(RELEASE_ARGS)

.PHONY: spark-archive
spark-archive: setup ## Pack pyspark for hosts without it (spark_archive)
	@mkdir -p build
	@[ build/spark.tar.gz -nt $(PYSPARK)/version.py ] || tar -C $(PYSPARK)/.. -czf build/spark.tar.gz pyspark
	@echo build/spark.tar.gz

.PHONY: lint
lint: setup ## Run ruff, mypy, import contracts, ansible-lint, yamllint
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint-python lint-roles

.PHONY: lint-python lint-roles
lint-python:
	@$(call say,ruff)
	@ruff check .
	@ruff format --check --quiet . || { echo "run \`make fmt\`"; exit 1; }
	@$(call say,mypy)
	@mypy
	@mypy fabfile.py inventory/*.py roles/*/files/*.py tools/*.py
	@MYPYPATH=.collections mypy --explicit-package-bases .collections/ansible_collections/landline/cluster/plugins/*/*.py
	@$(call say,import-linter)
	@lint-imports --no-logo 2>/dev/null || lint-imports

lint-roles:
	@$(call say,ansible-lint and yamllint)
	@ansible-lint --offline -q
	@yamllint --strict .
	@$(PY) tools/role_docs.py --check
	@$(PY) tools/task_become.py --check
	@$(PY) tools/message_types.py --check

.PHONY: fmt
fmt: setup ## Format the code and regenerate the roles' documentation
	@ruff check --fix-only --quiet .
	@ruff format --quiet .
	@$(PY) tools/role_docs.py
	@$(PY) tools/task_become.py

.PHONY: test
test: setup ## Run all tests but those of day-two: lint, unit and property, integration, then real hosts (an hour on 2 cores)
	@tools/apt-ensure $(TEST_PACKAGES)
	@tools/test-all $(TEST_ARGS)

.PHONY: unit
unit: setup ## Run unit and property tests
	@pytest tests/unit tests/property -q -n 2 $(TEST_ARGS)

.PHONY: crash
crash: setup ## Test a power loss at every moment of many workloads of the log (SEEDS=50)
	@CRASH_SEEDS=$(or $(SEEDS),50) CRASH_SHARE=1 pytest tests/property/test_crash_consistency.py -q -n 2 $(TEST_ARGS)

.PHONY: integration
integration: setup ## Run tests with real ZooKeeper, brokers and clients on this machine (PEERS=all: Kafka's brokers too)
	@tools/apt-ensure $(TEST_PACKAGES)
	@pytest tests/integration -q -n 2 --dist loadfile $(TEST_ARGS)

.PHONY: differential
differential: setup ## Send the same requests to Apache Kafka 3.9.1 and to Landline, and compare the answers: SEED=(of random walks) WALKS=3 PEER=landline
	@tools/apt-ensure $(TEST_PACKAGES)
	@DIFFERENTIAL_SEED=$(or $(SEED),0) DIFFERENTIAL_WALKS=$(or $(WALKS),3) DIFFERENTIAL_AGAINST=$(or $(PEER),kafka) pytest tests/differential -q $(TEST_ARGS)

.PHONY: cluster-test
cluster-test: setup ## Run tests on real hosts, in labs of their own
	@tools/apt-ensure $(TEST_PACKAGES)
	@tools/test-cluster $(TEST_ARGS)

.PHONY: day-two
day-two: setup ## Run the tests that are marked day_two: moves, reboots, a migration, Spark's standby on real hosts under load (two hours; not in make test)
	@tools/apt-ensure $(TEST_PACKAGES)
	@DAY_TWO=1 tools/test-cluster $(TEST_ARGS)

.PHONY: docs-test
docs-test: setup ## Run every command of README and docs as written, on a new cluster (included in make test)
	@tools/apt-ensure $(TEST_PACKAGES)
	@tools/test-docs $(TEST_ARGS)

.PHONY: stress
stress: setup ## Run real threads over the logs, and check invariants and the order of locks: SECONDS=60 SEED=(random)
	@$(PY) -m tests.stress --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

.PHONY: fuzz
fuzz: setup ## Fuzz every decoder, SASL, TLS and HTTP with invalid input, guided by coverage: SECONDS=60 each SEED=(random) (FUZZ_ARGS="--keep")
	@$(PY) -m tests.fuzz --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(FUZZ_ARGS)

.PHONY: chaos
chaos: setup ## Run a random walk of faults under load, and check every record: ROUNDS=50 SEED=(random) LAB=(a new one)
	@tools/apt-ensure $(TEST_PACKAGES)
	@$(CHAOS_LAB) tools/chaos walk --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(CHAOS_ARGS)

.PHONY: chaos-gaps
chaos-gaps: setup ## Measure how long producers wait under faults, beside Apache Kafka on the same hosts; into docs/reliability.md
	@tools/apt-ensure $(TEST_PACKAGES)
	@$(CHAOS_LAB) tools/chaos compare --report docs/reliability.md $(CHAOS_ARGS)

.PHONY: platforms
platforms: setup ## Deploy to each system that the lab can make hosts of, check, and write README's table (about 10 minutes)
	@tools/apt-ensure $(LAB_PACKAGES) $(JAVA_PACKAGES)
	@$(PY) -m tools.platforms run $(PLATFORM_ARGS)

.PHONY: sessions
sessions: setup ## Measure how short a ZooKeeper session may be on this machine at full load: SECONDS=600 DISK=(MB/s, its queue always full)
	@tools/apt-ensure $(JAVA_PACKAGES)
	@$(PY) -m chaos.sessions --seconds $(or $(SECONDS),600) $(if $(DISK),--disk-limit $(DISK))

.PHONY: compare
compare: setup ## Compare starts by each host itself with a master's push, and write a report: HOSTS=4 ROUNDS=6 LAB=(a new one)
	@tools/apt-ensure $(LAB_PACKAGES) $(JAVA_PACKAGES)
	@HOSTS=$(HOSTS) ROUNDS=$(COMPARE_ROUNDS) $(COMPARE_LAB) tools/compare $(COMPARE_ARGS)

.PHONY: compare-publish
compare-publish: setup ## Publish a comparison: data into compare/results, page into docs/comparison, answer into README: DATA=build/compare/DATE
	@$(PY) -m compare.report --input $(or $(DATA),$(error give DATA=build/compare/DATE)) --output docs/comparison --publish compare/results --readme README.md

.PHONY: chaos-mixed
chaos-mixed: setup ## Run Landline and Apache Kafka 3.9.1 in one cluster for long: ROUNDS=50 SEED=(random), about 15 s a round
	@tools/apt-ensure $(JAVA_PACKAGES)
	@ROUNDS=$(ROUNDS) SEED=$(SEED) pytest tests/mixed -v -s -p no:cacheprovider $(TEST_ARGS)

.PHONY: lake-kills
lake-kills: setup ## Kill the lake job in mid-stream repeatedly, and count every record: KILLS=10
	@tools/apt-ensure $(JAVA_PACKAGES)
	@LAKE_KILLS=$(or $(KILLS),10) pytest tests/integration/test_pipeline_lake.py -v -s -p no:cacheprovider $(TEST_ARGS)

.PHONY: bench
bench: compiled ## Measure start-up, memory, throughput, CPU per GiB, beside Apache Kafka in the same run
	@tools/apt-ensure $(TEST_PACKAGES)
	@$(PY) -m bench $(BENCH_ARGS)

.PHONY: perf-check
perf-check: setup ## Count the instructions of eleven requests, and compare with bench/guard/counts.json (PERF_ARGS="--profile fetch-1m")
	@tools/apt-ensure $(COUNT_PACKAGES)
	@PYTHONHASHSEED=0 $(PY) -m bench.guard $(PERF_ARGS)

.PHONY: perf-compiled
perf-compiled: compiled ## The same of compiled code
	@tools/apt-ensure $(COUNT_PACKAGES)
	@cd build/compiled-checkout && PYTHONHASHSEED=0 $(PY) -m bench.guard $(PERF_ARGS)

.PHONY: perf-baseline
perf-baseline: compiled ## Renew bench/guard/counts.json of both, to be committed with the reason
	@tools/apt-ensure $(COUNT_PACKAGES)
	@$(PY) -m bench.guard --update
	@cp bench/guard/counts.json build/compiled-checkout/bench/guard/
	@cd build/compiled-checkout && $(PY) -m bench.guard --update
	@cp build/compiled-checkout/bench/guard/counts.json bench/guard/

.PHONY: perf-times
perf-times: setup ## Measure the CPU time of the same requests on a quiet machine, against bench/guard/baseline.json (PERF_ARGS=--update)
	@PYTHONHASHSEED=0 $(PY) -m bench.guard --times $(PERF_ARGS)

.PHONY: perf-times-compiled
perf-times-compiled: compiled ## The same of compiled code, against bench/guard/baseline-compiled.json
	@cd build/compiled-checkout && PYTHONHASHSEED=0 $(PY) -m bench.guard --times $(PERF_ARGS)

.PHONY: cost
cost: setup ## Check the cost of many smallest elements of every array against bench/cost/table.json, then search for more expensive requests: EXAMPLES=2000 (minutes; COST_ARGS="--only=metadata*", "--update")
	@PYTHONHASHSEED=0 $(PY) -m bench.cost $(COST_ARGS)
	@$(if $(COST_ARGS),true,COST_EXAMPLES=$(or $(EXAMPLES),2000) pytest tests/cost -q -p no:cacheprovider)

.PHONY: sanity
sanity: setup ## Run ansible-test sanity over the built collection: a minute, and linters from PyPI (TEST_ARGS="--test pylint")
	@tools/test-sanity $(TEST_ARGS)

.PHONY: docs
docs: setup ## Generate the documentation of the roles' variables, and the types of messages
	@$(PY) tools/role_docs.py
	@$(PY) tools/message_types.py

.PHONY: clean
clean: ## Remove build/dist, build/wheelhouse, Spark's archive and the tools' caches; releases, compiled code, the lab and .venv stay
	@rm -rf build/dist build/wheelhouse build/spark.tar.gz .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
