#!/usr/bin/env bash
# check_objects.sh FOLDER: looks at the machine code that the compiler made of the kernels.
set -euo pipefail
build=$1
objects=$(find "$build" -name '*.cc.o' -path '*/backend/cpu/*')
[[ -n $objects ]] || { echo "objects: no CPU kernels below $build" >&2; exit 1; }

# g++ may vectorize a plain u8 x i8 loop to the VEX form of vpdpbusd, which Ice Lake lacks.
for object in $objects; do
  if objdump -d --no-show-raw-insn "$object" | grep -q '{vex} vpdp'; then
    echo "objects: $object uses a VEX-encoded dot product" >&2
    exit 1
  fi
done

# Files compiled for one instruction set by flags must not offer std functions to the linker: it
# could take that copy for everyone.
for object in $(printf '%s\n' "$objects" | grep -E '/(stages_[a-z0-9]*|int8_(avx2|vnni))\.cc\.o$' || true); do
  if nm -C "$object" | grep ' [WVu] '; then
    echo "objects: $object defines weak symbols" >&2
    exit 1
  fi
done
echo "objects: $(printf '%s\n' "$objects" | wc -l) checked"
