# SPDX-License-Identifier: Apache-2.0
# The embedded jemalloc, target cupola_jemalloc: one object made of the distribution's archive (embed_jemalloc.sh) and our
# stubs. allocator/meta.c is its only user. Sanitized builds use the sanitizer's malloc: the target is empty there.
if(TARGET cupola_jemalloc)
  return()
endif()
if(CUPOLA_SANITIZE)
  add_library(cupola_jemalloc INTERFACE)
  return()
endif()

find_library(CUPOLA_JEMALLOC_ARCHIVE NAMES libjemalloc_pic.a DOC "position-independent static jemalloc")
find_path(CUPOLA_JEMALLOC_INCLUDE jemalloc/jemalloc.h DOC "folder of jemalloc/jemalloc.h")
if(NOT CUPOLA_JEMALLOC_ARCHIVE OR NOT CUPOLA_JEMALLOC_INCLUDE)
  message(FATAL_ERROR "jemalloc's static library is missing: apt-get install libjemalloc-dev")
endif()

set(embedded "${CMAKE_BINARY_DIR}/jemalloc_embedded.o")
add_custom_command(
  OUTPUT "${embedded}"
  COMMAND "${CMAKE_COMMAND}" -E env "AR=${CMAKE_AR}" "LD=${CMAKE_LINKER}" "NM=${CMAKE_NM}" "OBJCOPY=${CMAKE_OBJCOPY}"
          "${CMAKE_CURRENT_LIST_DIR}/embed_jemalloc.sh" "${CUPOLA_JEMALLOC_ARCHIVE}" "${embedded}"
  DEPENDS "${CMAKE_CURRENT_LIST_DIR}/embed_jemalloc.sh" "${CUPOLA_JEMALLOC_ARCHIVE}"
  COMMENT "Embedding jemalloc under our prefix" VERBATIM)
set_source_files_properties("${embedded}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_library(cupola_jemalloc STATIC "${CUPOLA_ROOT}/allocator/jemalloc_stubs.c" "${embedded}")
