# Helpers that give every target the same warnings, include path and test set-up.
#
#   rivulet_library(NAME SRCS ... [DEPS public...] [PRIVATE_DEPS ...])   static library
#   rivulet_executable(NAME SRCS ... DEPS ...)
#   rivulet_test(NAME SRCS ... DEPS ... [LABELS ...] [TIMEOUT seconds])  one binary, each TEST a ctest
#   rivulet_benchmark(NAME SRCS ... DEPS ...)
#   rivulet_fuzzer(NAME SRCS ... DEPS ... CORPUS dir)   libFuzzer target with RIVULET_FUZZ, and
#                                                       always a test that replays its corpus
include(GoogleTest)

# All libFuzzer targets of the build.
add_custom_target(fuzzers)

function(_rivulet_common target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR} ${CMAKE_BINARY_DIR}/config)
  target_compile_options(${target} PRIVATE ${RIVULET_WARNINGS})
endfunction()

function(rivulet_library name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SRCS})
  _rivulet_common(${name})
  target_link_libraries(${name} PUBLIC ${A_DEPS} PRIVATE ${A_PRIVATE_DEPS})
endfunction()

function(rivulet_executable name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  _rivulet_common(${name})
  target_link_libraries(${name} PRIVATE ${A_DEPS})
endfunction()

function(rivulet_test name)
  cmake_parse_arguments(A "" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  add_executable(${name} ${A_SRCS})
  _rivulet_common(${name})
  target_link_libraries(${name} PRIVATE ${A_DEPS} GTest::gmock GTest::gtest_main)
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
    PROPERTIES TIMEOUT ${A_TIMEOUT} LABELS "${A_LABELS}")
endfunction()

function(rivulet_benchmark name)
  if(NOT RIVULET_BENCHMARKS)
    return()
  endif()
  cmake_parse_arguments(A "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  _rivulet_common(${name})
  target_link_libraries(${name} PRIVATE ${A_DEPS} benchmark::benchmark_main)
endfunction()

function(rivulet_fuzzer name)
  cmake_parse_arguments(A "" "CORPUS" "SRCS;DEPS" ${ARGN})
  if(RIVULET_FUZZ)
    add_executable(${name} ${A_SRCS})
    _rivulet_common(${name})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE ${A_DEPS})
    add_dependencies(fuzzers ${name})
  endif()
  # tests/fuzz/replay_main.cc feeds every file of the corpus to the same entry point.
  add_executable(${name}_replay ${A_SRCS} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc)
  _rivulet_common(${name}_replay)
  target_link_libraries(${name}_replay PRIVATE ${A_DEPS})
  add_test(NAME ${name}.replays_corpus COMMAND ${name}_replay ${A_CORPUS})
endfunction()
