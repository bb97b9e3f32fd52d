#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The rows for OpenGL and EGL, whose types we copied, have those of the toolkit's headers.      interop.sh ROOT CUDA_INCLUDE CC
# Those headers want a few names of OpenGL's and EGL's own, which are the same everywhere: they are given here.
set -eu
. "$(dirname "$0")/lib.sh"
root=$1 cuda=$2 cc=$3

mkdir -p "$scratch/GL" "$scratch/EGL"
echo 'typedef unsigned int GLuint; typedef unsigned int GLenum;' >"$scratch/GL/gl.h"
echo 'typedef int EGLint; typedef void *EGLImageKHR, *EGLStreamKHR, *EGLSyncKHR;' >"$scratch/EGL/egl.h"
: >"$scratch/EGL/eglext.h"
cat >"$scratch/check.c" <<'END'
#include "shim/cuda_abi.h"
#include <cudaEGL.h>
#include <cudaGL.h>
#include "shim/interop_abi.h"
_Static_assert(sizeof(cup_egl_frame_t) == sizeof(CUeglFrame), "size of a frame");
_Static_assert(_Alignof(cup_egl_frame_t) == _Alignof(CUeglFrame), "alignment of a frame");
#define cup_egl_frame_t CUeglFrame
#include "shim/submit_list.h"
#define X(symbol, params, args, ...) \
    CUresult ours_##symbol params;   \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), __typeof__(ours_##symbol)), #symbol);
CUP_SUBMIT_INTEROP_LIST(X)
CUP_SUBMIT_DOUBT_INTEROP_LIST(X)
END

# root of the LISTs
check_types() {
    "$cc" -std=gnu11 -fsyntax-only -I "$1" -I "$scratch" -isystem "$cuda" "$scratch/check.c" 2>"$scratch/errors" ||
        say "$(grep -m 3 error "$scratch/errors")"
}

check_types "$root"
mkdir -p "$scratch/planted/shim"
cp "$root"/shim/*.h "$scratch/planted/shim"
sed -i 's/unsigned int fields\[9\]/unsigned int fields[7]/' "$scratch/planted/shim/interop_abi.h"
must_find "a frame of another size" check_types "$scratch/planted"
cp "$root/shim/interop_abi.h" "$scratch/planted/shim"
sed -i 's/cuGLUnmapBufferObjectAsync, (unsigned int buffer/cuGLUnmapBufferObjectAsync, (long buffer/' "$scratch/planted/shim/submit_list.h"
must_find "a parameter of another type" check_types "$scratch/planted"
verdict
