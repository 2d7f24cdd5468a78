# Writes OUTPUT (a C++ source) with the version and the commit of SOURCE_DIR, only where it changes.
execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE_DIR}
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
set(id ${VERSION})
if(NOT failed)
  string(APPEND id "+${commit}")
endif()
file(WRITE ${OUTPUT}.new "#include \"base/build_id.h\"

namespace bulkhead {

std::string_view BuildId() { return \"${id}\"; }

std::string_view Version() { return \"${VERSION}\"; }

}  // namespace bulkhead
")
execute_process(COMMAND ${CMAKE_COMMAND} -E copy_if_different ${OUTPUT}.new ${OUTPUT})
