# Writes OUTPUT with the commit of SOURCE_DIR; touches the file only where the commit changed, so that a build without
# new commits compiles nothing. Run as a script on every build: cmake -DSOURCE_DIR=... -DOUTPUT=... -P commit.cmake
set(commit "")
find_program(GIT git)
if(GIT)
  # -c safe.directory: a checkout that belongs to another user (a container's mount) is only read.
  execute_process(COMMAND ${GIT} -c safe.directory=* -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(commit "")
  endif()
endif()
if(NOT commit)
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "// The commit of this build, written by commit.cmake.\n#define QUINTET_COMMIT \"${commit}\"\n")
