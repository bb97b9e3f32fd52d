/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LIST of the built-in kernels: SC_KERNEL(name, parameters, ranges).
 *   parameters  a letter each: q for 8 bytes, d for 4
 *   ranges      of device memory that it touches, by argument number: SC_SPAN(pointer, count, bytes each)
 *               is read, SC_OUT(the same) and SC_WORD(pointer), of 8 bytes, are written
 */
/* clang-format off */
SC_KERNEL(fill, "qqq", SC_OUT(0, 1, 1))
SC_KERNEL(verify, "qqqq", SC_SPAN(0, 1, 1) SC_WORD(3))
SC_KERNEL(hash, "qqq", SC_SPAN(0, 1, 1) SC_WORD(2))
SC_KERNEL(copy, "qqq", SC_OUT(0, 2, 1) SC_SPAN(1, 2, 1))
SC_KERNEL(late_fill, "qqqq", SC_OUT(0, 1, 1))
SC_KERNEL(held_fill, "qqqq", SC_OUT(0, 1, 1))
SC_KERNEL(spin, "q", )
SC_KERNEL(spin_until, "qd", )
SC_KERNEL(chase, "qqqq", SC_SPAN(0, 1, 8) SC_WORD(3))
SC_KERNEL(axpy, "qqqd", SC_OUT(0, 2, 4) SC_SPAN(1, 2, 4))
