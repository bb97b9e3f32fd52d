/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interop_abi - types of cudaEGL.h with the same ABI, because that header wants EGL's, which a machine that
 * computes seldom has. A lint compares them where it does (tests/lint/interop.sh).
 */
#ifndef CUP_SHIM_INTEROP_ABI_H
#define CUP_SHIM_INTEROP_ABI_H

/* CUeglStreamConnection itself, and a CUeglFrame, which is passed by value: size and alignment are what
 * counts. */
typedef struct CUeglStreamConnection_st *cup_egl_connection_t;
typedef struct cup_egl_frame {
    void *planes[3];
    unsigned int fields[9];
} cup_egl_frame_t;

#endif /* CUP_SHIM_INTEROP_ABI_H */
