# Language level, warnings, sanitizers and where executables go.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

find_program(RIVULET_CCACHE ccache)
if(RIVULET_CCACHE)
  # Paths count relative to the checkout, so that another clone finds its objects.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${RIVULET_CCACHE})
endif()

# Packed bytes and sums must not depend on whether a compiler fuses a
# multiplication and an addition.
add_compile_options(-ffp-contract=off)

set(RIVULET_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wundef -Wvla -Werror)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND RIVULET_WARNINGS -Wthread-safety -Wthread-safety-beta)
endif()

if(RIVULET_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  add_compile_options(-fsanitize=${RIVULET_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${RIVULET_SANITIZE})
  if(RIVULET_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  if(RIVULET_SANITIZE MATCHES "thread")
    # The sanitizer cannot see locks inside packaged libraries: common/base/sync.h
    # then uses std::mutex.
    add_compile_definitions(RIVULET_TSAN=1)
  endif()
endif()

if(RIVULET_FUZZ)
  # Coverage in all code under test, not only in the fuzzers' own sources.
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
