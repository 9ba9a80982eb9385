# find_package(rlx) then gives rlx::rlx, with headers by their full path ("rlx/base/shape.h").
if(NOT TARGET rlx)
  return()
endif()
include(CMakePackageConfigHelpers)

file(GLOB_RECURSE headers CONFIGURE_DEPENDS rlx/*.h)
file(GLOB_RECURSE tables CONFIGURE_DEPENDS rlx/*.def)
# Not part of the product: the test library, the oracle, and what lies inside a backend.
list(FILTER headers EXCLUDE REGEX "/rlx/(testing|backend/reference|backend/[a-z]+/.+)/|-inl\\.h$")
list(FILTER tables EXCLUDE REGEX "/rlx/(testing|backend)/")
target_sources(rlx
  PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers}
  PUBLIC FILE_SET tables TYPE HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${tables})
# `all_verify_interface_header_sets` compiles each header on its own (tables need a macro first).
set_target_properties(rlx PROPERTIES
  VERIFY_INTERFACE_HEADER_SETS ON
  INTERFACE_HEADER_SETS_TO_VERIFY HEADERS
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/rlx)
install(TARGETS rlx EXPORT rlx
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILE_SET tables DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT rlx NAMESPACE rlx:: FILE rlx-targets.cmake DESTINATION ${package_folder})
configure_package_config_file(cmake/rlx-config.cmake.in ${CMAKE_BINARY_DIR}/rlx-config.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/rlx-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/rlx-config.cmake ${CMAKE_BINARY_DIR}/rlx-config-version.cmake
        DESTINATION ${package_folder})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET rlx_cli)
  install(TARGETS rlx_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
