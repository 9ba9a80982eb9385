# Short names for the common jobs. CMake and its presets do the work.
JOBS ?= $(shell nproc)
export JOBS

.PHONY: all demo test bench oracle fuzz fuzz-graph format lint build-times asan tsan install-check clean setup
.DEFAULT_GOAL := all

setup:
	@scripts/setup.sh

# build-release, build-asan, ...: configure and build one preset.
build-%: setup
	@test -f build/$*/build.ninja || cmake --preset $*
	@cmake --build build/$* -j $(JOBS)

all: build-release

demo: build-release
	build/release/bin/example-digits --data examples/digits/data
	build/release/bin/example-charlm --weights examples/charlm/weights \
	  --text examples/charlm/data/pride_and_prejudice.txt.gz

test: build-release
	ctest --test-dir build/release -j $(JOBS) --output-on-failure --no-tests=error
	scripts/conformance.sh build/release/bin/rlx-conformance test
	scripts/conformance.sh build/release/bin/rlx-conformance grad
	scripts/conformance.sh build/release/bin/rlx-conformance samples

bench: build-release
	build/release/bin/rlx-bench

asan: build-asan
	scripts/check_sanitized.sh asan

tsan: build-tsan
	scripts/check_sanitized.sh tsan

# Each parser of untrusted files for FUZZ_SECONDS, from the corpus under fuzz/corpus.
FUZZ_SECONDS ?= 60
fuzz: build-fuzz
	@for f in text binary npy; do \
	  mkdir -p build/fuzz/corpus/$$f; \
	  build/fuzz/bin/fuzz-$$f -max_total_time=$(FUZZ_SECONDS) -timeout=10 -print_final_stats=1 \
	    build/fuzz/corpus/$$f fuzz/corpus/$$f || exit 1; \
	done

# Random graphs through the compiler, for FUZZ_SECONDS.
fuzz-graph: build-fuzz
	@mkdir -p build/fuzz/corpus/graph
	@build/fuzz/bin/fuzz-graph -max_total_time=$(FUZZ_SECONDS) -timeout=60 -max_len=512 -len_control=0 \
	  -print_final_stats=1 build/fuzz/corpus/graph

format: setup
	@scripts/format.sh

lint: setup
	@scripts/format.sh --check
	@python3 scripts/check_layers.py
	@cmake --preset release > /dev/null
	@python3 scripts/lint.py --build build/release --jobs $(JOBS)

# The reference against NumPy, SciPy and JAX (about 600 MB of Python packages, once).
oracle: build-release
	@scripts/oracle.sh

install-check: setup
	@scripts/check_install.sh

# The name would match build-%; an explicit rule wins.
build-times: setup
	@python3 scripts/build_times.py --jobs $(JOBS)

clean:
	rm -rf build
