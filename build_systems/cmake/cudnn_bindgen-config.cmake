# cudnn_bindgen_add_module(NAME GRAPH FILE... [FOR GPU...] [CUDNN FOLDER...] [TORCH]
#                          [BACKWARD FILE...] [OPTIONS WORD...] [DESTINATION FOLDER])
#
# Adds the target NAME: the extension module of a graph; of several graphs, a family. It is emitted
# again when a graph changes, with plans for each GPU. Stub and declarations (NAME.pyi, NAME.pxd)
# are written beside it; DESTINATION installs all of them. OPTIONS are further words of
# `cudnn-bindgen emit`, such as --symbol. BACKWARD adds a target for each graph of gradients.

cmake_minimum_required(VERSION 3.20)  # DEPFILE for make, cmake_path

if(NOT TARGET Python::Module)
  find_package(Python COMPONENTS Interpreter Development.Module REQUIRED)
endif()

function(cudnn_bindgen_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "DESTINATION" "GRAPH;FOR;CUDNN;BACKWARD;OPTIONS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_GRAPH)
    message(FATAL_ERROR "cudnn_bindgen_add_module(${name}): expected GRAPH FILE..., "
      "got \"${arg_UNPARSED_ARGUMENTS}\"")
  endif()

  set(words ${arg_OPTIONS})
  list(LENGTH arg_GRAPH count)
  if(count GREATER 1)
    list(APPEND words --family ${name})
  endif()
  if(arg_TORCH)
    list(APPEND words --torch)
  endif()
  foreach(gpu IN LISTS arg_FOR)
    list(APPEND words --for ${gpu})
  endforeach()
  foreach(folder IN LISTS arg_CUDNN)
    list(APPEND words --cudnn ${folder})
  endforeach()

  set(graphs "")
  foreach(graph IN LISTS arg_GRAPH)
    cmake_path(ABSOLUTE_PATH graph BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    list(APPEND graphs ${graph})
  endforeach()
  set(modules ${name})
  set(gradients "")
  foreach(graph IN LISTS arg_BACKWARD)
    cmake_path(ABSOLUTE_PATH graph BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    cmake_path(GET graph STEM LAST_ONLY stem)
    if(NOT stem MATCHES "^[a-z_][a-z0-9_]*$")
      message(FATAL_ERROR "cudnn_bindgen_add_module(${name}): BACKWARD: expected a file whose name "
        "is a module's, got ${graph}")
    endif()
    list(APPEND modules ${stem})
    list(APPEND gradients ${graph})
    list(APPEND words --backward ${graph})
  endforeach()

  set(files "")
  foreach(module IN LISTS modules)
    list(APPEND files ${module}.pyi ${module}.pxd)
    if(arg_TORCH)
      list(APPEND files ${module}_torch.py)
    endif()
  endforeach()
  list(TRANSFORM files PREPEND ${CMAKE_CURRENT_BINARY_DIR}/)
  set(sources ${modules})
  list(TRANSFORM sources REPLACE "(.+)" "${CMAKE_CURRENT_BINARY_DIR}/\\1.pyx")
  list(GET sources 0 source)
  add_custom_command(
    OUTPUT ${sources} ${files}
    COMMAND ${Python_EXECUTABLE} -m cudnn_bindgen emit ${graphs} -o ${source} ${words}
            --depfile ${source}.d
    DEPENDS ${graphs} ${gradients}
    DEPFILE ${source}.d
    COMMENT "Emitting ${name}"
    VERBATIM)

  foreach(module source IN ZIP_LISTS modules sources)
    add_custom_command(
      OUTPUT ${source}.c
      COMMAND ${Python_EXECUTABLE} -m cython ${source} -o ${source}.c
      DEPENDS ${source} ${files}
      COMMENT "Translating ${module}"
      VERBATIM)
    Python_add_library(${module} MODULE WITH_SOABI ${source}.c)
  endforeach()
  if(DEFINED arg_DESTINATION)
    install(TARGETS ${modules} LIBRARY DESTINATION ${arg_DESTINATION})
    install(FILES ${files} DESTINATION ${arg_DESTINATION})
  endif()
endfunction()
