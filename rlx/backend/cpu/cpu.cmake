# Flags of single files. Options of a file come after those of the preset, so these win.

# The stage machine passes vectors in registers, which clang decides by the flags of the file and not
# by the target of a function; its calls in tail position need -O2 and no sanitizers.
set(stage_flags_scalar "-DHWY_BROKEN_EMU128=1")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(stage_flags_avx3 "-march=icelake-server")
  # Without the last two Highway falls to SSSE3 and says nothing.
  set(stage_flags_avx2 "-march=haswell;-maes;-mpclmul")
endif()
foreach(target avx3 avx2 scalar)
  set_source_files_properties(
    ${PROJECT_SOURCE_DIR}/rlx/backend/cpu/region/stages_${target}.cc
    PROPERTIES COMPILE_OPTIONS
    "${stage_flags_${target}};-UHWY_DISABLED_TARGETS;-mtune=generic;-O2;-ffp-contract=off;-fno-sanitize=all")
endforeach()

# Dot products of bytes. No -mavxvnni: compilers would choose that shorter form of the instruction,
# which Ice Lake lacks.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(int8_avx2 -mavx2 -mfma -mf16c)
  set(int8_vnni ${int8_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
  foreach(file int8_avx2 int8_vnni)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/rlx/backend/cpu/int8/${file}.cc
                                PROPERTIES COMPILE_OPTIONS "${${file}}")
  endforeach()
endif()
