# bulkhead_library(NAME sources... DEPS libs...): a static library, included from the project's root.
function(bulkhead_library name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
endfunction()

# bulkhead_program(NAME sources... DEPS libs...): an executable in build/<preset>/bin.
function(bulkhead_program name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

# bulkhead_test(NAME sources... DEPS libs... LABEL unit|fault|sim|golden|e2e|fence|systemd|repo TIMEOUT seconds ARGS args...):
# one GoogleTest program registered with ctest. Sanitizer builds run the labels unit, fault and sim.
function(bulkhead_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "DEPS;ARGS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  bulkhead_program(${name} ${ARG_UNPARSED_ARGUMENTS} DEPS ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()

# bulkhead_fuzzer(NAME sources... DEPS libs...): a libFuzzer target, built by the fuzz preset only.
function(bulkhead_fuzzer name)
  if(NOT BULKHEAD_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  bulkhead_program(${name} ${ARG_UNPARSED_ARGUMENTS} DEPS ${ARG_DEPS})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endfunction()
