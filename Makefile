# Every target sets up what it needs; only python3 (3.11 or newer) and make must exist.

PYTHON :=
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CONSTRAINTS := constraints.txt
EXTRAS := cli,report,spark,embedded,docker,metrics,lake
ARGS :=
TESTS :=
SEED := 1
SEEDS := 1000
SECONDS := 600
# Half of the 20 histories: each of this number is copied as rows, and another one with all versions.
HISTORIES := 10
CRASHES := 5
SOAK := 120
FUZZ := build/fuzz
IMAGE := build/image
PYTHON_IMAGE = python:$(shell $(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')-slim
# The number of test processes is one more than the number of processors, because many tests wait for a
# server, but at most four, because each process may start Spark. The tests of a file share a process and
# its fixtures, and files run in the order in which they are collected (tests/conftest.py). The quick tests
# of the Spark source share a single process too, so that Spark starts once. Slow and nightly tests are
# distributed one by one.
PROCESSES := --numprocesses=$(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1))) --maxprocesses=4
BY_FILE := --dist=loadfile --no-loadscope-reorder
ONE_SPARK := --dist=loadscope --no-loadscope-reorder
ONE_BY_ONE := --dist=load --maxschedchunk=1
KERNEL := $(wildcard cdc_reader/decoding/*.pyx cdc_reader/decoding/native/*.pxi)

# Spark runs on the Java that the script finds, and its workers on the environment's Python.
# An archive of the classes that Spark loads lets Spark start in half the time in tests.
CLASSES := $(VENV)/spark-classes.jsa
SPARK_ENV = JAVA_HOME="$$(scripts/java-home)" PYSPARK_PYTHON="$(CURDIR)/$(BIN)/python"

# Tests that use Spark also run on older versions of Spark, each in a separate environment. VERSION is one
# of the versions below, or an exact version. The quick part is what differs between the versions: batch,
# stream, triggers, types, SQL, `fold` and errors. The tests of executors and plans start no Spark.
VERSION := 4.2
SPARK_4.0 := 4.0.0
SPARK_4.1 := 4.1.4
SPARK_4.2 := 4.2.1
OLDER_SPARK := $(or $(SPARK_$(VERSION)),$(VERSION))
OLDER := build/spark-$(OLDER_SPARK)$(addprefix -,$(notdir $(PYTHON)))
SPARK_TESTS := tests/connectors tests/docs tests/examples \
    tests/cdc_reader/cli/test_demo.py tests/packaging/test_install.py tests/cluster/test_local_cluster.py
SPARK_TESTS_QUICK := $(addprefix tests/connectors/pyspark_scylla_cdc/,test_import.py test_schema.py \
    test_source.py test_spark_versions.py test_type_matrix.py streaming/test_stream.py tables/test_fold.py \
    test_bad_input.py::test_batch_stream_and_sql_raise_the_same_line) \
    $(addprefix --deselect=tests/connectors/pyspark_scylla_cdc/tables/test_fold.py::test_,random_statements \
    in_every_micro_batch)

# Tests that break the project, and assert that other tests notice.
MUTATIONS := $(addsuffix /test_mutations.py,$(addprefix tests/cdc_reader/,simulation testing/embedded) \
    $(addprefix tests/connectors/pyspark_scylla_cdc/,streaming tables))

# Each of these files has its own cluster, so that two can run at once.
CLUSTER_TESTS := tests/cluster/test_faults.py tests/cluster/test_reading.py
CLUSTER_INSTALL_TESTS := tests/cluster/test_howto.py tests/cluster/test_doctor.py

# Tests that run with scylla-driver instead of cassandra-driver, in a separate environment: the tests of
# the reader and of the Spark source. The quick part is what differs between the drivers.
SCYLLA_DRIVER := 3.29.12
FORK := build/scylla-driver/venv
FORKED := $(VENV)/.scylla-driver-$(SCYLLA_DRIVER)
FORK_TESTS := tests/cdc_reader tests/connectors tests/docs/test_code_blocks.py
FORK_TESTS_QUICK := $(addprefix tests/cdc_reader/,cluster test_reader.py decoding/test_driver.py)

# Environments with the oldest and the newest dependencies that pyproject.toml allows.
OLDEST := build/oldest
NEWEST := build/newest

# The site is built with separately installed tools. Mermaid, of which the site has a copy, draws the
# diagrams in the reader's browser.
SITE := build/docs
MERMAID := 12.3.0
PUPPETEER := 24.43.1
AXE := 4.14.1

# Many tests start Python processes, which would all compile the same modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install java prometheus chromium demo test test-slow test-nightly test-mutations test-all test-some test-cluster \
    test-cluster-install test-spark test-spark-cluster test-spark-quick test-scylla-driver test-scylla-driver-quick test-clients \
    test-containers embedded-image soak fuzz fuzz-kernel bench simulate simulate-snapshots \
    simulate-mirror simulate-mirror-spark lint format api constraints clean test-oldest test-newest screenshots docs \
    publish-docs sdist wheels local-wheels check-wheels check-docs

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /make \1\t/p' $(MAKEFILE_LIST) | expand -t 26

install: $(INSTALLED) java ## fill .venv with the project and its tools; find or install Java

demo: install ## watch a Spark DataFrame fill from a CDC log
	@$(SPARK_ENV) $(BIN)/scylla-cdc demo

test: install $(CLASSES) prometheus ## run the quick tests: every part of the project once; ARGS="-k window" runs some
	$(SPARK_ENV) $(BIN)/python -m pytest -m "not slow and not nightly and not cluster" $(PROCESSES) $(ONE_SPARK) $(TESTS) $(ARGS)

test-slow: install $(CLASSES) prometheus ## run slower tests: mutations, faults, random histories, other libraries
	$(SPARK_ENV) $(BIN)/python -m pytest -m "slow and not nightly and not cluster" $(PROCESSES) $(ONE_BY_ONE) $(TESTS) $(ARGS)

test-nightly: install $(CLASSES) prometheus chromium ## run the slowest tests: variations, load, crashes
	$(SPARK_ENV) $(BIN)/python -m pytest -m "nightly and not cluster" $(PROCESSES) $(ONE_BY_ONE) $(TESTS) $(ARGS)

test-all: install $(CLASSES) prometheus chromium ## run all tests
	$(SPARK_ENV) $(BIN)/python -m pytest -m "not cluster" $(PROCESSES) $(BY_FILE) $(TESTS) $(ARGS)

# Too few to be worth an archive of Spark's classes.
test-some: java
	$(SPARK_ENV) $(BIN)/python -m pytest -m "not nightly and not cluster" $(PROCESSES) $(ONE_SPARK) $(TESTS) $(ARGS)

test-mutations: install $(CLASSES) ## put 60 defects into the project, which fixed seeds and recordings must detect
	$(SPARK_ENV) $(BIN)/python -m pytest $(PROCESSES) $(BY_FILE) $(MUTATIONS) $(ARGS)

test-cluster: install ## read on a Spark cluster of several machines, with faults and counts; as root
	$(SPARK_ENV) $(BIN)/python -m pytest -m cluster -rP --durations=0 \
	    --numprocesses=2 --dist=loadgroup $(or $(TESTS),$(CLUSTER_TESTS)) $(ARGS)

test-cluster-install: ## follow the how-to, and run `doctor`, on clusters without the package; as root
	$(MAKE) test-cluster CLUSTER_TESTS="$(CLUSTER_INSTALL_TESTS)"

test-spark: $(OLDER)/constraints.txt ## run the tests that use Spark on an older version; VERSION=4.0, 4.1, 4.2
	$(MAKE) test-all VENV=$(OLDER)/venv CONSTRAINTS=$< TESTS="$(SPARK_TESTS)"

test-spark-cluster: $(OLDER)/constraints.txt ## run both on an older version; VERSION=4.0, 4.1, 4.2
	$(MAKE) test-cluster VENV=$(OLDER)/venv CONSTRAINTS=$< CLUSTER_TESTS=tests/cluster

test-spark-quick: $(OLDER)/quick/.ready ## run the quick part of test-spark, without nightly tests
	$(MAKE) test-some VENV=$(<D) TESTS="$(SPARK_TESTS_QUICK)"

test-scylla-driver: ## run the tests with scylla-driver, those of Spark included
	$(MAKE) scylla-driver VENV=$(FORK)
	$(MAKE) test-all VENV=$(FORK) TESTS="$(FORK_TESTS)"

test-scylla-driver-quick: ## run the quick part of test-scylla-driver, without nightly tests
	$(MAKE) scylla-driver VENV=$(FORK)
	$(MAKE) test-some VENV=$(FORK) TESTS="$(FORK_TESTS_QUICK)"

test-oldest: install ## run the quick tests with the oldest dependencies that pyproject.toml allows
	mkdir -p $(OLDEST)
	$(BIN)/python -m scripts.oldest_constraints $(OLDEST)/constraints.txt
	$(MAKE) test VENV=$(OLDEST)/venv CONSTRAINTS=$(OLDEST)/constraints.txt

test-newest: $(NEWEST)/constraints.txt ## run the quick tests with the newest dependencies
	$(MAKE) test VENV=$(NEWEST)/venv CONSTRAINTS=$<

test-clients: install ## connect drivers in Go, Java, Rust, Node and Python, and cqlsh; skip those without a compiler
	$(BIN)/python -m pytest -rs tests/clients $(ARGS)

test-containers: install ## test on ScyllaDB in containers; ARGS=--scylla=docker:IMAGE for another image
	$(BIN)/python -m pytest -rs tests/containers tests/cdc_reader/test_nodes.py \
	    $(or $(filter --scylla=%,$(ARGS)),--scylla=docker) $(filter-out --scylla=%,$(ARGS))

embedded-image: install ## build an image of the embedded server that is run like ScyllaDB's own
	rm -rf $(IMAGE) && mkdir -p $(IMAGE)
	$(BIN)/pip wheel --quiet --constraint $(CONSTRAINTS) --build-constraint $(CONSTRAINTS) \
	    --wheel-dir $(IMAGE)/wheels '.[cli,embedded]'
	cp tests/containers/image/* $(IMAGE)
	docker build --build-arg BASE="$(or $(BASE),$(PYTHON_IMAGE))" --tag scylla-cdc-embedded $(IMAGE)

soak: install ## follow a table written at full speed for 2 minutes; kill a query 20 times; SOAK=600
	SOAK_SECONDS=$(SOAK) KILLS=20 $(SPARK_ENV) $(BIN)/python -m pytest -rP --timeout 1800 \
	    tests/connectors/pyspark_scylla_cdc/crashes/test_full_speed.py \
	    tests/connectors/pyspark_scylla_cdc/crashes/test_kill.py $(ARGS)

fuzz: install ## send the embedded server 200,000 damaged frames, 20,000 statements; SEED=7 for others
	SCYLLA_CDC_FUZZ=200000 SCYLLA_CDC_STATEMENTS=20000 SCYLLA_CDC_FUZZ_SEED=$(SEED) \
	    $(BIN)/python -m pytest -rP --show-capture=stdout --timeout 3600 \
	    $(addprefix tests/cdc_reader/testing/embedded/test_,fuzzing.py random_statements.py) $(ARGS)

# The sanitizers' runtime must be loaded before Python; atheris provides it.
fuzz-kernel: install ## feed the kernel damaged pages, under sanitizers; needs clang; SECONDS=600
	$(BIN)/python -m tests.fuzzing.build_kernel $(FUZZ)
	$(BIN)/pip install --quiet --upgrade --target $(FUZZ)/packages atheris==3.0.0
	LD_PRELOAD="$(CURDIR)/$(FUZZ)/packages/asan_with_fuzzer.so" PYTHONPATH=$(FUZZ)/packages \
	    ASAN_OPTIONS=detect_leaks=0,allocator_may_return_null=1 \
	    $(BIN)/python -m tests.fuzzing.kernel $(FUZZ) -max_total_time=$(SECONDS) $(ARGS)

bench: install ## measure against rivals; ARGS="decode read" for some benchmarks
	$(SPARK_ENV) $(BIN)/python -m tests.benchmarks $(ARGS)

simulate: install ## follow 1,000 random histories through faults and crashes; SEEDS=1 SEED=7 for one
	SCYLLA_CDC_SEEDS=$(SEEDS) SCYLLA_CDC_SEED=$(SEED) $(BIN)/python -m pytest \
	    tests/cdc_reader/simulation/test_simulation.py -k every_history $(ARGS)

simulate-snapshots: install ## repeat snapshots after losses, in Python and Spark, in 1,000 random histories
	SCYLLA_CDC_SEEDS=$(SEEDS) SCYLLA_CDC_SEED=$(SEED) $(BIN)/python -m pytest \
	    tests/cdc_reader/consumer/test_resnapshot.py \
	    tests/connectors/pyspark_scylla_cdc/streaming/test_snapshot.py -k "every_history or every_loss" $(ARGS)

simulate-mirror: install $(CLASSES) ## keep copies of a table in 20 random histories for each target, through 5 crashes
	MIRROR_HISTORIES=$(HISTORIES) MIRROR_CRASHES=$(CRASHES) $(SPARK_ENV) $(BIN)/python -m pytest \
	    --numprocesses=2 --dist=load --maxschedchunk=1 -k through_crashes \
	    tests/connectors/pyspark_scylla_cdc/tables/test_mirror.py $(ARGS)

simulate-mirror-spark: $(OLDER)/constraints.txt ## the same on an older version, with Delta Lake (up to 4.2) and Iceberg (4.0, 4.1) too
	$(MAKE) simulate-mirror VENV=$(OLDER)/venv CONSTRAINTS=$<

lint: $(INSTALLED) ## check style, types and imports between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports

format: $(INSTALLED) ## rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

api: $(INSTALLED) ## write docs/reference/api.md from the docstrings
	$(BIN)/python -m scripts.api_reference

screenshots: install ## draw the pictures of commands in docs/images; ARGS=demo for one
	PATH="$(CURDIR)/$(BIN):$$PATH" $(SPARK_ENV) $(BIN)/python -m scripts.screenshots $(ARGS)

docs: $(SITE)/.installed docs/assets/mermaid.min.js ## build the site in build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(SITE)/venv/bin/mkdocs build --strict --quiet

check-docs: docs $(SITE)/node_modules/.installed ## open each page in Chromium: errors, links, accessibility
	node scripts/check_site.mjs build/site $(SITE)

publish-docs: $(SITE)/.installed docs/assets/mermaid.min.js ## publish the site of VERSION=v1.2.3 or VERSION=dev
	SITE_VERSIONS=mike NO_MKDOCS_2_WARNING=1 $(SITE)/venv/bin/mike deploy --push --update-aliases \
	    $(VERSION) $(if $(filter v%,$(VERSION)),latest)

sdist: $(INSTALLED) ## build the source distribution in dist/
	$(BIN)/hatchling build --target sdist

wheels: $(INSTALLED) ## build and test this machine's wheels in wheelhouse/; needs a container engine
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) cibuildwheel
	$(BIN)/cibuildwheel --output-dir wheelhouse $(ARGS)

local-wheels: $(INSTALLED) ## build Linux wheels without a container; PYTHONS="python3.11 python3.12"
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/build-wheels wheelhouse $(or $(PYTHONS),$(BIN)/python)

check-wheels: $(INSTALLED) java ## run demo, tutorial and tests from the wheels in wheelhouse/ for PYTHON
	JAVA_HOME="$$(scripts/java-home)" $(BIN)/python -m scripts.check_wheel \
	    $(addprefix --python=,$(PYTHON)) wheelhouse

constraints: ## renew constraints.txt; use PYTHON=python3.11
	scripts/renew-constraints "$(PYTHON)" "$(EXTRAS)"

clean: ## remove .venv, caches and built files
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	    .import_linter_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@scripts/java-home --install >/dev/null

# If Prometheus cannot be installed, the tests that need it are skipped with a message.
prometheus: ## get promtool for the tests of examples/monitoring
	@scripts/prometheus --install >/dev/null || true

chromium: ## install Chromium for the tests that open pages, if root on Debian
	@scripts/chromium --install >/dev/null || true

$(CLASSES): $(INSTALLED) | java
	$(SPARK_ENV) $(BIN)/python -m tests.spark_classes

# Differs from constraints.txt only in the line of pyspark.
$(OLDER)/constraints.txt: constraints.txt
	mkdir -p $(@D)
	sed 's/^pyspark==.*/pyspark==$(OLDER_SPARK)/' $< >$@
	grep -qx 'pyspark==$(OLDER_SPARK)' $@

# An environment with another pyspark, and with the other packages of .venv.
$(OLDER)/quick/.ready: $(OLDER)/constraints.txt $(INSTALLED)
	$(BIN)/python -m venv --clear --without-pip $(@D)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"), "$(CURDIR)", \
	    "$(CURDIR)/connectors", sep="\n")' >"$$(echo $(@D)/lib/python3*/site-packages)/shared.pth"
	$(BIN)/pip --python $(@D)/bin/python install --quiet --constraint $< pyspark
	@touch $@

$(NEWEST)/constraints.txt: pyproject.toml
	mkdir -p $(@D)
	echo "# none: the newest of everything" >$@

$(SITE)/.installed: pyproject.toml $(CONSTRAINTS)
	scripts/make-venv $(SITE)/venv $(PYTHON)
	$(SITE)/venv/bin/pip install --quiet --constraint $(CONSTRAINTS) --upgrade pip
	$(SITE)/venv/bin/pip install --quiet --constraint $(CONSTRAINTS) --group docs
	@touch $@

docs/assets/mermaid.min.js: Makefile
	@command -v npm >/dev/null || { echo "make docs needs npm: install Node.js" >&2; exit 1; }
	mkdir -p $(SITE) $(@D)
	cd $(SITE) && npm pack --silent mermaid@$(MERMAID)
	tar -xzOf $(SITE)/mermaid-$(MERMAID).tgz package/dist/mermaid.min.js >$@

$(SITE)/node_modules/.installed: Makefile
	npm install --silent --no-audit --no-fund --prefix $(SITE) \
	    puppeteer-core@$(PUPPETEER) axe-core@$(AXE)
	@touch $@

# Both drivers install into the same folder: see docs/howto/use-scylla-driver.md.
scylla-driver: $(FORKED)
.PHONY: scylla-driver

$(FORKED): $(INSTALLED)
	$(BIN)/pip uninstall --quiet --yes cassandra-driver scylla-driver
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) scylla-driver==$(SCYLLA_DRIVER)
	@touch $@

# Install the tested versions from constraints.txt, including those of build requirements.
$(INSTALLED): pyproject.toml $(CONSTRAINTS) hatch_build.py $(KERNEL)
	scripts/make-venv $(VENV) $(PYTHON)
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --upgrade pip
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --build-constraint $(CONSTRAINTS) \
	    --editable '.[$(EXTRAS)]' --group dev
	@touch $@
