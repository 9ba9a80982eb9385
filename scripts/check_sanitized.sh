#!/usr/bin/env bash
# check_sanitized.sh asan|tsan: runs what that build is for. asan: all unit tests and the
# conformance test. tsan: the unit tests in which several threads take part.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
bin=build/$preset/bin

# Tests ask for more memory than there is and expect an error, so a failed allocation must not end
# the process.
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1
# Far fewer random graphs than make test takes: instrumented, those would be most of the time.
export RLX_RANDOM_GRAPHS=200

case $preset in
  asan)
    "$bin/rlx-tests" --gtest_brief=1
    scripts/conformance.sh "$bin/rlx-conformance" test
    ;;
  tsan)
    filter='*Team*:*Thread*:*Executable*:*Session*:*AllocationCounter*:*Control*:*Bounds*:*BindSize*:*Custom*'
    filter+=':*Profile*:*Random*:*Plan.*:*Attention*:*CpuGemm*:*Regression*:*Groups*-RandomFusion*'
    count=$("$bin/rlx-tests" --gtest_list_tests --gtest_filter="$filter" | grep -c '^  ' || true)
    echo "tsan: $count tests"
    [[ $count -gt 0 ]] || { echo "tsan: the filter matches no test" >&2; exit 1; }
    # Without a fixed address layout this sanitizer's shadow memory may collide with a mapping.
    setarch -R "$bin/rlx-tests" --gtest_brief=1 --gtest_filter="$filter"
    ;;
  *)
    echo "usage: check_sanitized.sh asan|tsan" >&2
    exit 2
    ;;
esac
