# Compiler flags, third-party packages and the two functions by which every folder declares itself.

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
                    $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
                    $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns of string concatenation in its own headers (GCC bug 105651).
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
foreach(sanitizer ${QUINTET_SANITIZE})
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${sanitizer}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${sanitizer})
endforeach()
if("undefined" IN_LIST QUINTET_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
endif()
if(QUINTET_FUZZ)  # instruments the libraries; fuzz/CMakeLists.txt links libFuzzer's main into the targets alone
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  if(QUINTET_FUZZ_COVERAGE)
    add_compile_options(-fprofile-instr-generate -fcoverage-mapping)
    add_link_options(-fprofile-instr-generate)
  endif()
endif()
if(QUINTET_PORTABLE)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a ${CMAKE_FIND_LIBRARY_SUFFIXES})
  set(OPENSSL_USE_STATIC_LIBS ON)
  set(Boost_USE_STATIC_LIBS ON)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(Boost 1.81 REQUIRED)

# What carries formatting and logging: Debian ships both as shared libraries only, so a portable build takes their headers.
add_library(quintet_log_libraries INTERFACE)
if(QUINTET_PORTABLE)
  target_link_libraries(quintet_log_libraries INTERFACE spdlog::spdlog_header_only fmt::fmt-header-only)
else()
  target_link_libraries(quintet_log_libraries INTERFACE spdlog::spdlog fmt::fmt)
endif()

# A library from pkg-config names, static where the build is portable.
function(quintet_find_library target header)
  find_path(${target}_INCLUDE ${header} REQUIRED)
  find_library(${target}_LIB NAMES ${ARGN} REQUIRED)
  add_library(${target} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${${target}_LIB}
                        INTERFACE_INCLUDE_DIRECTORIES ${${target}_INCLUDE})
endfunction()
quintet_find_library(pcre2 pcre2.h pcre2-8)
quintet_find_library(utf8proc utf8proc.h utf8proc)

# Highway is used through its headers alone (each SIMD target is a translation unit of its own).
find_path(HWY_INCLUDE hwy/highway.h REQUIRED)
add_library(hwy_headers INTERFACE)
target_include_directories(hwy_headers INTERFACE ${HWY_INCLUDE})

# quintet_library(NAME [SOURCES ...] DEPS ...): quintet_NAME from every .cpp of the calling folder
# (not of its subfolders) and the extra SOURCES.
function(quintet_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  list(APPEND sources ${ARG_SOURCES})
  if(sources)
    add_library(quintet_${name} STATIC ${sources})
    target_include_directories(quintet_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(quintet_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  else()
    add_library(quintet_${name} INTERFACE)
    target_include_directories(quintet_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(quintet_${name} INTERFACE ${ARG_DEPS} ${ARG_PRIVATE_DEPS})
  endif()
endfunction()

# quintet_simd_targets(NAME): NAME_baseline.cpp, NAME_avx2.cpp and NAME_avx512.cpp of the calling folder are the same code, each
# with its own instruction set; base/cpu_simd.h says at run time which one this machine runs.
function(quintet_simd_targets name)
  if("address" IN_LIST QUINTET_SANITIZE)
    # Inlined checks make these files, which are nothing but inlined vector code, take several minutes each: addresses are
    # checked by calls, undefined behaviour not at all.
    set(kernel_flags -fno-sanitize=undefined -fno-sanitize-address-use-after-scope
      --param=asan-instrumentation-with-call-threshold=0)
  endif()
  set(sse4_flags -mssse3 -msse4.1 -msse4.2 -mpopcnt -mpclmul -maes)  # what x86-64 machines have had since 2010
  set(avx2_flags ${sse4_flags} -mavx2 -mfma -mf16c -mbmi -mbmi2)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set_source_files_properties(${name}_baseline.cpp PROPERTIES COMPILE_OPTIONS "${kernel_flags};${sse4_flags}")
    set_source_files_properties(${name}_avx2.cpp PROPERTIES COMPILE_OPTIONS "${kernel_flags};${avx2_flags}")
    set_source_files_properties(${name}_avx512.cpp PROPERTIES COMPILE_OPTIONS
      "${kernel_flags};${avx2_flags};-mavx512f;-mavx512cd;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mprefer-vector-width=512")
  else()
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
      # Highway's NEON functions are declared with +crypto, though the kernels use none of it.
      set_source_files_properties(${name}_baseline.cpp PROPERTIES COMPILE_OPTIONS -march=armv8-a+crypto)
    endif()
    set_source_files_properties(${name}_avx2.cpp ${name}_avx512.cpp PROPERTIES HEADER_FILE_ONLY ON)
  endif()
endfunction()

# quintet_tests(NAME LABEL l DEPS ...): one program quintet_NAME_tests from every *_test.cpp of the calling folder.
function(quintet_tests name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(QUINTET_SANITIZE)  # everything takes several times as long
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 4")
  endif()
  add_executable(quintet_${name}_tests ${sources})
  target_include_directories(quintet_${name}_tests PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(quintet_${name}_tests PRIVATE QUINTET_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(quintet_${name}_tests PRIVATE ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND quintet_${name}_tests)
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT}
                       WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()
