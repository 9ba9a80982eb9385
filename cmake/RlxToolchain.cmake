# The one place for flags. Every target of the project links rlx_options.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # the static library goes into Python modules too
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

set(library_type STATIC)
if(RLX_SHARED)
  set(library_type SHARED)
endif()

if(RLX_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(RLX_CCACHE_PROGRAM ccache)
  if(RLX_CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${RLX_CCACHE_PROGRAM})
  endif()
endif()

add_library(rlx_options INTERFACE)
# Fused code equals unfused code bit for bit, so the compiler must not contract a*b+c on its own.
target_compile_options(rlx_options INTERFACE -Wall -Wextra -ffp-contract=off
                                             -fno-semantic-interposition)
if(RLX_WERROR)
  target_compile_options(rlx_options INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 reports impossible overlaps inside std::string's operator+ (its bug 105651).
  target_compile_options(rlx_options INTERFACE -Wno-restrict)
endif()

# Highway builds AVX3_DL, AVX2 and SCALAR on x86: AVX3_DL is opt-in, and the SCALAR switch makes
# g++ and clang agree. The disabled bits are x86 ones, so other processors keep all targets.
target_compile_definitions(rlx_options INTERFACE
  HWY_WANT_AVX3_DL
  HWY_BROKEN_EMU128=1
  "HWY_DISABLED_TARGETS=(${RLX_DISABLED_TARGETS})")

if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(rlx_options INTERFACE _GLIBCXX_ASSERTIONS)
endif()

if(RLX_SANITIZE)
  target_compile_options(rlx_options INTERFACE -fsanitize=${RLX_SANITIZE}
                                               -fno-sanitize-recover=all)
  target_link_options(rlx_options INTERFACE -fsanitize=${RLX_SANITIZE})
  # Line numbers are all that a report needs of the debug information.
  target_compile_options(rlx_options INTERFACE -g1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(rlx_options INTERFACE -fno-var-tracking)
    # Instrumented code defeats the flow analysis behind this warning; plain builds keep it.
    target_compile_options(rlx_options INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()

if(RLX_MOLD)
  find_program(RLX_MOLD_PROGRAM mold)
  if(RLX_MOLD_PROGRAM)
    # mold 1.10 may begin the read-only-after-relocation segment in the middle of a page, behind a
    # small .tbss; the loader then refuses the program ("cannot apply additional memory protection").
    target_link_options(rlx_options INTERFACE -fuse-ld=mold -Wl,-z,norelro)
  endif()
endif()

# rlx_fewer_checks(source...): leaves out the checks of references and pointers themselves (null,
# alignment, type), not of what is accessed through them. They take most of the time to compile
# where every operation is a call with references: ten times in the vector code, twice in tests.
function(rlx_fewer_checks)
  if(RLX_SANITIZE MATCHES "undefined")
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS
      -fno-sanitize=null,alignment,object-size,pointer-overflow,vptr
      -fno-sanitize=nonnull-attribute,returns-nonnull-attribute)
  endif()
  if(RLX_SANITIZE MATCHES "address")
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS
      -fno-sanitize-address-use-after-scope)
  endif()
endfunction()
